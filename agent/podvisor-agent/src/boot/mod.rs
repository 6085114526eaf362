//! What must be true before the agent serves: mounts, cgroups, logging, a host name, the loopback link.
//! One file per step, in this order; a step that fails is fatal. It knows nothing of the pod.

mod cgroups;
mod idle;
mod log;
mod mounts;

use std::io::Write;

/// The name the guest has until the pod's is known.
const HOST_NAME: &str = "podvisor";

/// Why the guest cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootError {
    #[error(transparent)]
    Mount(#[from] mounts::MountError),
    #[error(transparent)]
    Cgroup(#[from] cgroups::CgroupError),
    #[error("cannot set the host name")]
    HostName(#[source] nix::Error),
}

/// All steps that need no asynchronous work.
pub(crate) fn run() -> Result<(), BootError> {
    mounts::run()?;
    log::run();
    cgroups::run()?;
    idle::run();
    nix::unistd::sethostname(HOST_NAME).map_err(BootError::HostName)
}

/// Writes the reason why the agent ends to the console, where the VMM keeps its last lines.
pub(crate) fn fatal(reason: &str) {
    let text = format!("podvisor-agent: fatal: {reason}\n");
    let console = std::fs::OpenOptions::new().write(true).open("/dev/console");
    // Before /dev is mounted the kernel's own standard error is all there is.
    let written = console.and_then(|mut console| console.write_all(text.as_bytes()));
    if written.is_err() {
        eprint!("{text}");
    }
}
