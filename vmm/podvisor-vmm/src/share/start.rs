//! Starts the share's process, and ends it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use proto_vmm::VolumeCache;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use vmm_vm::{ShareLink, descriptors};

use super::{ARGUMENT, NAME};
use crate::jail;

/// The program of this process, even if it was executed without a path.
const PROGRAM: &str = "/proc/self/exe";

/// Longest time until the share serves, in milliseconds. The VMM's client waits longer.
const READY_MS: u16 = 10_000;

/// Longest time for the share to end when it is not needed any more, in milliseconds. It may be stuck in a
/// hanging file system.
const END_MS: u16 = 1000;

/// The share cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub(crate) enum ShareError {
    #[error("cannot start the share's process")]
    Start(#[source] io::Error),
    #[error("the share does not serve")]
    NotReady(#[source] io::Error),
}

/// The share's process, as the VMM has it.
pub(crate) struct ShareProcess {
    link: ShareLink,
    /// Readable once the process has ended.
    ended: OwnedFd,
}

/// Starts the process in this one's working directory, as the first in a PID namespace of its own. The VMM
/// has none: its end would wait for every process in it, and the share may be stuck in a hanging file system.
pub(crate) fn start(volume_cache: VolumeCache) -> Result<ShareProcess, ShareError> {
    let (link, theirs) = ShareLink::pair().map_err(ShareError::Start)?;
    // Including descriptors left open by the daemon.
    if let Err(error) = descriptors::close_on_exec() {
        tracing::info!(%error, "this kernel does not close all descriptors of a program at once");
    }
    let mut share = Command::new(PROGRAM);
    share
        .arg0(NAME)
        .args([ARGUMENT, volume_cache.as_str()])
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = jail::with_processes_of_its_own(|| share.spawn()).map_err(ShareError::Start)?;
    let pid = Pid::from_child(&child);
    let ended = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| ShareError::Start(error.into()))?;
    Ok(ShareProcess { link, ended })
}

impl ShareProcess {
    pub(crate) fn wait_until_ready(&self) -> Result<(), ShareError> {
        self.link.wait_until_ready(READY_MS).map_err(ShareError::NotReady)
    }

    pub(crate) fn link(&self) -> &ShareLink {
        &self.link
    }

    /// Readable once the process has ended.
    pub(crate) fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Hangs up, and waits a moment for the process's end. When the VMM is gone, its volumes are free.
    pub(crate) fn end(self) {
        let ShareProcess { link, ended } = self;
        drop(link);
        let mut process = [PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut process, PollTimeout::from(END_MS));
    }
}
