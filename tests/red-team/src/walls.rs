//! The walls around a VMM and its share, and how to take each away: by the system calls that raise it. The
//! processes are the shipped ones. A call that raises a missing wall is skipped, or loses a flag.

use libc::{c_long, user_regs_struct};

/// A wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wall {
    /// The filter of system calls.
    Seccomp,
    /// Landlock.
    Landlock,
    /// The mount namespace and the root directory in it.
    Root,
    /// The network namespace.
    Network,
    /// The IPC namespace.
    Ipc,
    /// The share's PID namespace.
    Processes,
    /// The VMM's own user, and the capabilities given up.
    User,
    /// Resource limits.
    Limits,
    /// The flags of volumes' mounts: no devices, no set-user-id programs. The daemon raises it.
    VolumeFlags,
}

impl Wall {
    pub(crate) const ALL: [Wall; 9] = [
        Wall::Seccomp,
        Wall::Landlock,
        Wall::Root,
        Wall::Network,
        Wall::Ipc,
        Wall::Processes,
        Wall::User,
        Wall::Limits,
        Wall::VolumeFlags,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Wall::Seccomp => "seccomp",
            Wall::Landlock => "landlock",
            Wall::Root => "root",
            Wall::Network => "network",
            Wall::Ipc => "ipc",
            Wall::Processes => "pid",
            Wall::User => "user",
            Wall::Limits => "limits",
            Wall::VolumeFlags => "volume-flags",
        }
    }

    /// Calls that only raise this wall.
    fn calls(self) -> &'static [c_long] {
        match self {
            Wall::Seccomp => &[libc::SYS_seccomp],
            Wall::Landlock => &[libc::SYS_landlock_restrict_self],
            // The share makes directories in the mounts that are missing then.
            Wall::Root => &[
                libc::SYS_mount,
                libc::SYS_pivot_root,
                libc::SYS_umount2,
                libc::SYS_mkdir,
                libc::SYS_mkdirat,
            ],
            Wall::User => &[
                libc::SYS_setgroups,
                libc::SYS_setgid,
                libc::SYS_setuid,
                libc::SYS_setresgid,
                libc::SYS_setresuid,
                libc::SYS_capset,
            ],
            Wall::Limits => &[libc::SYS_prlimit64, libc::SYS_setrlimit],
            Wall::Network | Wall::Ipc | Wall::Processes | Wall::VolumeFlags => &[],
        }
    }

    /// Options of prctl that raise this wall.
    fn options(self) -> &'static [i32] {
        match self {
            Wall::Seccomp => &[libc::PR_SET_SECCOMP],
            Wall::User => {
                &[libc::PR_SET_KEEPCAPS, libc::PR_SET_SECUREBITS, libc::PR_CAPBSET_DROP, libc::PR_CAP_AMBIENT]
            }
            _ => &[],
        }
    }

    /// Flags of unshare that raise this wall.
    fn flags(self) -> i32 {
        match self {
            Wall::Network => libc::CLONE_NEWNET,
            Wall::Ipc => libc::CLONE_NEWIPC,
            Wall::Processes => libc::CLONE_NEWPID,
            _ => 0,
        }
    }
}

/// The walls that stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    None,
    Only(Wall),
    All,
}

/// What becomes of a call on its way into the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    AsItIs,
    /// The caller believes that it succeeded.
    Skipped,
    /// With another first argument.
    With(u64),
}

impl Standing {
    pub(crate) fn has(self, wall: Wall) -> bool {
        match self {
            Standing::None => false,
            Standing::Only(one) => one == wall,
            Standing::All => true,
        }
    }

    /// Decides about a call by its number and arguments.
    pub(crate) fn passage(self, registers: &user_regs_struct) -> Passage {
        let (call, first) = (registers.orig_rax.cast_signed(), registers.rdi);
        let missing: Vec<Wall> = Wall::ALL.into_iter().filter(|wall| !self.has(*wall)).collect();
        // Without a new limit the call only reads the old one.
        let reads = call == libc::SYS_prlimit64 && registers.rdx == 0;
        if !reads && missing.iter().any(|wall| wall.calls().contains(&call)) {
            return Passage::Skipped;
        }
        if call == libc::SYS_prctl && missing.iter().any(|wall| wall.options().contains(&low_half(first))) {
            return Passage::Skipped;
        }
        if call == libc::SYS_unshare {
            let lost = missing.iter().fold(0, |flags, wall| flags | wall.flags());
            let kept = low_half(first) & !lost;
            return if kept == low_half(first) {
                Passage::AsItIs
            } else {
                Passage::With(u64::from(kept.cast_unsigned()))
            };
        }
        Passage::AsItIs
    }
}

/// The kernel takes such arguments as numbers of 32 bits.
fn low_half(argument: u64) -> i32 {
    argument as u32 as i32
}
