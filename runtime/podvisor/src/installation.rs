//! What the daemon requires of its files and directories before it serves. `podvisor check` examines the
//! same. It must not find a node fit where the daemon then refuses to start.

use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, anyhow, ensure};
use runtime_pod::{Digests, InstalledFile};
use runtime_spec::Kernel;

use crate::config::Config;

/// Longest run directory, in bytes: a pod's socket below it, `/pods/<24 digits>/control.sock`, must fit
/// into the 107 of a unix socket's path (unix(7)).
const RUN_DIR_BYTES_MAX: usize = 107 - "/pods//control.sock".len() - 24;

/// Checks that each handler's kernel is there.
///
/// # Errors
/// A handler's kernel is missing; the error names both.
pub(crate) fn check_kernels(config: &Config) -> anyhow::Result<()> {
    for handler in config.handlers().0.iter().filter(|handler| handler.kernel != Kernel::Small) {
        let path = config.kernel(handler.kernel);
        let asked = || format!("handler {} asks for the kernel {}", handler.name, path.display());
        std::fs::metadata(&path).with_context(asked)?;
    }
    Ok(())
}

/// Compares kernels and root image with the list of digests beside them. Returns false if there is no list.
/// No pod waits here, so all of their bytes can be read: some ten MiB.
///
/// # Errors
/// A file differs from the installed one or cannot be read, or the list is damaged.
pub(crate) fn check_digests(config: &Config, files: [&InstalledFile; 3]) -> anyhow::Result<bool> {
    let digests = Digests::of(&config.paths.guest_image)?;
    if !digests.are_there() {
        return Ok(false);
    }
    // In parallel, because the largest file takes as long as all others.
    std::thread::scope(|scope| {
        let checks = files.map(|file| scope.spawn(|| file.check(&digests)));
        checks.into_iter().try_for_each(|check| {
            Ok::<_, anyhow::Error>(
                check.join().map_err(|_| anyhow!("comparing the guest image with its digests"))??,
            )
        })
    })?;
    Ok(true)
}

/// Checks that the sockets of pods fit below `paths.run`.
///
/// # Errors
/// The path is too long.
pub(crate) fn check_run_dir(config: &Config) -> anyhow::Result<()> {
    let bytes = config.paths.run.as_os_str().as_bytes().len();
    ensure!(
        bytes <= RUN_DIR_BYTES_MAX,
        "paths.run has {bytes} bytes, and sockets' names allow {RUN_DIR_BYTES_MAX} at most"
    );
    Ok(())
}
