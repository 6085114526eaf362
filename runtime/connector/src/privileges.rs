//! Before it reads a packet, the process drops root, capabilities, the ability to gain any, and unneeded
//! descriptors.

use std::io;

use caps::CapSet;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid, setsid};

use crate::carry::CONNECTIONS_MAX;
use crate::command_line::ConnectorUser;

/// Most descriptors of the process: two for each connection, one more during its checks, and a few of its
/// own.
const DESCRIPTORS_MAX: u64 = 3 * CONNECTIONS_MAX as u64 + 32;

/// Becomes the user, always without capabilities. A process without root, as in tests, keeps its user.
pub(crate) fn give_up(user: &ConnectorUser) -> io::Result<()> {
    // A session of its own keeps away signals for the daemon's terminal or group. It fails for a session
    // leader.
    let _ = setsid();
    prctl::set_name(c"podvisor-socket")?;
    std::env::set_current_dir("/")?;
    setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS_MAX, DESCRIPTORS_MAX)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    if Uid::effective().is_root() {
        clear(CapSet::Bounding)?;
        let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
        setgroups(&groups)?;
        let gid = Gid::from_raw(user.gid);
        setresgid(gid, gid, gid)?;
        let uid = Uid::from_raw(user.uid);
        setresuid(uid, uid, uid)?;
    }
    // Root keeps its capabilities through this, and any other user has none by now.
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        clear(set)?;
    }
    Ok(prctl::set_no_new_privs()?)
}

fn clear(set: CapSet) -> io::Result<()> {
    caps::clear(None, set).map_err(io::Error::other)
}
