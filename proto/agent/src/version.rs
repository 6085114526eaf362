//! Versions of this contract: the versions of each side, and a check for a common one. Pure.
//!
//! Either side states its versions in its first message: the agent when it is ready
//! ([`AgentReady`](crate::agent::AgentReady)), the daemon when it configures a pod
//! ([`ConfigurePodRequest`](crate::agent::ConfigurePodRequest)), and both when a daemon connects to a running
//! guest ([`HelloRequest`](crate::agent::HelloRequest)). A side without a common version refuses the other.
//! Its message has both sides' versions.
//!
//! A change raises [`NEWEST`] if an older peer must not ignore it (a mandatory field, a frame of another
//! form). Messages from older peers are understood down to [`OLDEST`].

use std::fmt;

/// Newest version of this side.
pub const NEWEST: u32 = 6;
/// Oldest version of this side.
pub const OLDEST: u32 = 1;
/// First version with volumes kept in the guest ([`GuestVolume`](crate::agent::GuestVolume)).
pub const GUEST_VOLUMES: u32 = 2;
/// First version with limits of writable layers
/// ([`CreateContainerRequest`](crate::agent::CreateContainerRequest)).
pub const LAYER_LIMITS: u32 = 2;
/// First version with volumes on the pod's disks ([`DiskVolume`](crate::agent::DiskVolume)).
pub const DISK_VOLUMES: u32 = 3;
/// First version with sockets of the node ([`HostSocket`](crate::agent::HostSocket)).
pub const HOST_SOCKETS: u32 = 4;
/// First version with preparing a guest for a pod not known yet
/// ([`PreparePodRequest`](crate::agent::PreparePodRequest)).
pub const PREPARE: u32 = 5;
/// First version with compiled system call filters
/// ([`CreateContainerRequest`](crate::agent::CreateContainerRequest)).
pub const SYSCALL_FILTERS: u32 = 6;

/// The versions of one side. A side without stated versions has only version 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Versions {
    oldest: u32,
    newest: u32,
}

/// Two sides without a common version.
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

/// Checks an agent's versions, in the daemon.
///
/// # Errors
/// The daemon has none of them.
pub fn check_agent(oldest: u32, newest: u32) -> Result<(), VersionError> {
    check("agent", Versions { oldest, newest }, "daemon")
}

/// Checks a daemon's versions, in the agent.
///
/// # Errors
/// The agent has none of them.
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
