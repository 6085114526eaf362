//! The steps before the agent serves: mounts, logging, cgroups, settings for an idle guest, and a host name.
//! Each step has a file, and they run in this order. A failed step is fatal. Booting knows nothing of the
//! pod; [`crate::configure`] comes later, with the host's first call.

mod cgroups;
mod idle;
mod log;
mod mounts;

use std::io::Write;

/// The guest's host name until the pod's is known.
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

/// Runs all steps, in their order.
pub(crate) fn run() -> Result<(), BootError> {
    mounts::run()?;
    log::run();
    cgroups::run()?;
    idle::run();
    nix::unistd::sethostname(HOST_NAME).map_err(BootError::HostName)
}

/// Repeats the one step needed after restoring a guest: the logger of the new execution.
pub(crate) fn restored() {
    log::run();
}

/// Writes the reason for the agent's end to the console. The VMM keeps the console's last lines.
pub(crate) fn fatal(reason: &str) {
    let text = format!("podvisor-agent: fatal: {reason}\n");
    let console = std::fs::OpenOptions::new().write(true).open("/dev/console");
    // Before /dev is mounted, only the kernel's standard error is available.
    let written = console.and_then(|mut console| console.write_all(text.as_bytes()));
    if written.is_err() {
        eprint!("{text}");
    }
}
