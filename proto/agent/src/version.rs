//! Versions of this contract: which of them each side speaks, and whether two sides have one in common. Pure.
//!
//! Either side states its versions in its first message: the agent when it is ready
//! ([`AgentReady`](crate::agent::AgentReady)), the daemon when it configures a pod
//! ([`ConfigurePodRequest`](crate::agent::ConfigurePodRequest)), and both when a daemon comes to a guest that runs already
//! ([`HelloRequest`](crate::agent::HelloRequest)). A side that finds none in common refuses the other, with both texts.
//!
//! A change that an older peer cannot pass over (a field that must be understood, a frame of another form) raises
//! [`NEWEST`]; what an older peer still sends is understood as long as [`OLDEST`] says so.

use std::fmt;

/// The newest version that this side speaks.
pub const NEWEST: u32 = 6;
/// The oldest.
pub const OLDEST: u32 = 1;
/// The first version whose agents keep volumes in the guest ([`GuestVolume`](crate::agent::GuestVolume)).
pub const GUEST_VOLUMES: u32 = 2;
/// The first version whose agents limit writable layers
/// ([`CreateContainerRequest`](crate::agent::CreateContainerRequest)).
pub const LAYER_LIMITS: u32 = 2;
/// The first version whose agents keep volumes on disks of the pod's ([`DiskVolume`](crate::agent::DiskVolume)).
pub const DISK_VOLUMES: u32 = 3;
/// The first version whose agents lead programs to sockets of the node ([`HostSocket`](crate::agent::HostSocket)).
pub const HOST_SOCKETS: u32 = 4;
/// The first version whose agents prepare a guest for a pod that is not known yet
/// ([`PreparePodRequest`](crate::agent::PreparePodRequest)).
pub const PREPARE: u32 = 5;
/// The first version whose agents take compiled filters of system calls
/// ([`CreateContainerRequest`](crate::agent::CreateContainerRequest)).
pub const SYSCALL_FILTERS: u32 = 6;

/// The versions that one side speaks. A side that states none speaks version 0 and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Versions {
    oldest: u32,
    newest: u32,
}

/// Two sides without a version in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {peer} speaks {theirs} of the protocol between daemon and agent, and this {side} speaks {ours}")]
pub struct VersionError {
    peer: &'static str,
    side: &'static str,
    theirs: Versions,
    ours: Versions,
}

impl Versions {
    fn overlap(self, other: Versions) -> bool {
        self.oldest <= other.newest && other.oldest <= self.newest
    }
}

/// Checks, in the daemon, the versions that an agent states.
///
/// # Errors
/// The daemon speaks none of them.
pub fn check_agent(oldest: u32, newest: u32) -> Result<(), VersionError> {
    check("agent", Versions { oldest, newest }, "daemon")
}

/// Checks, in the agent, the versions that a daemon states.
///
/// # Errors
/// The agent speaks none of them.
pub fn check_daemon(oldest: u32, newest: u32) -> Result<(), VersionError> {
    check("daemon", Versions { oldest, newest }, "agent")
}

fn check(peer: &'static str, theirs: Versions, side: &'static str) -> Result<(), VersionError> {
    let ours = Versions { oldest: OLDEST, newest: NEWEST };
    if theirs.overlap(ours) { Ok(()) } else { Err(VersionError { peer, side, theirs, ours }) }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(f, "version {}", self.newest)
        } else {
            write!(f, "versions {} to {}", self.oldest, self.newest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_with_a_version_in_common_understand_each_other() {
        for (oldest, newest) in [(OLDEST, NEWEST), (0, OLDEST), (NEWEST, NEWEST + 5), (0, u32::MAX)] {
            check_agent(oldest, newest).unwrap();
            check_daemon(oldest, newest).unwrap();
        }
    }

    #[test]
    fn sides_without_one_refuse_each_other_by_both_versions() {
        let newer = check_agent(NEWEST + 1, NEWEST + 2).unwrap_err().to_string();
        let theirs = format!("the agent speaks versions {} to {} of the protocol", NEWEST + 1, NEWEST + 2);
        assert!(newer.starts_with(&theirs), "{newer}");
        assert!(newer.ends_with(&format!("this daemon speaks versions {OLDEST} to {NEWEST}")), "{newer}");
        // A peer from before versions were stated.
        let older = check_daemon(0, 0).unwrap_err().to_string();
        assert!(older.starts_with("the daemon speaks version 0"), "{older}");
    }
}
