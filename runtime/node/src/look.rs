//! A check of the node before any change: whether Podvisor can be installed there. Each refusal names the
//! problem and the remedy.

use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::host::{CallError, Host};
use crate::payload::{CONFIGURATION, DAEMON, Payload, is_unit};
use crate::record::InstallRecord;
use crate::root::{HostRoot, RootError};

/// Space kept free beside the files, for records, logs and the daemon's start.
const MARGIN_BYTES: u64 = 64 << 20;

/// Files of the Debian package and of `make install`.
const OF_OTHERS: &[&str] = &["/usr/bin/podvisor", "/usr/lib/systemd/system/podvisor.service"];

/// A node unfit for an installation.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The node's disk failed.
    #[error(transparent)]
    Root(#[from] RootError),
    /// There is no systemd.
    #[error("systemd does not run this node (no /run/systemd/system), and Podvisor is a unit of systemd")]
    NoSystemd,
    /// There is no KVM.
    #[error("this node has no /dev/kvm: load kvm_intel or kvm_amd; in a VM, ask for nested virtualization")]
    NoKvm,
    /// Podvisor was installed by other means.
    #[error("{} is on this node: Podvisor was installed there by a package or by hand; remove it first", .0.display())]
    Installed(PathBuf),
    /// A unit is not ours.
    #[error("{} on this node was not installed by this program, or is a link; remove it first", .0.display())]
    Foreign(PathBuf),
    /// The installed release is newer.
    #[error(
        "the installed release keeps its records in schema {installed}, and this one reads schema {ours} at most: \
         install a newer one, or first remove the pods, then Podvisor with --purge by the installed release"
    )]
    Downgrade {
        /// The schema of the installed release's records.
        installed: u64,
        /// The newest schema that the program to install reads.
        ours: u64,
    },
    /// The files cannot be written.
    #[error("{} is on a read-only file system; make an image with another PREFIX", .0.display())]
    ReadOnly(PathBuf),
    /// The disk is too full.
    #[error("{} has {free_bytes} bytes free, and {needed_bytes} are needed", path.display())]
    NoSpace {
        /// Directory on the full file system.
        path: PathBuf,
        /// Bytes needed for the files, with some reserve.
        needed_bytes: u64,
        /// Free bytes.
        free_bytes: u64,
    },
}

/// Refuses if Podvisor cannot be installed, or was installed by other means.
pub(crate) fn look(root: &HostRoot, payload: &Payload, record: &InstallRecord) -> Result<(), Refusal> {
    if root.kind(Path::new("/run/systemd/system"))? != Some(FileType::Directory) {
        return Err(Refusal::NoSystemd);
    }
    if root.kind(Path::new("/dev/kvm"))? != Some(FileType::CharacterDevice) {
        return Err(Refusal::NoKvm);
    }
    for path in OF_OTHERS.iter().map(Path::new).filter(|path| !record.files.contains(*path)) {
        if root.kind(path)?.is_some() {
            return Err(Refusal::Installed(path.to_owned()));
        }
    }
    for unit in payload.files.iter().map(|file| &file.to).filter(|path| is_unit(path)) {
        // A link to /dev/null masks the unit.
        if root.is_link(unit)? || (!record.files.contains(unit) && root.kind(unit)?.is_some()) {
            return Err(Refusal::Foreign(unit.clone()));
        }
    }
    space(root, payload)
}

/// Refuses a release that could not read the records of the node's daemon: no daemon would run then. The
/// installed program is newer than the daemon after an upgrade whose check failed. So it is asked only if the
/// daemon was started by something else since. One that does not say its schema is an older one.
pub(crate) fn downgrade(
    root: &HostRoot,
    host: &dyn Host,
    record: &InstallRecord,
    ours: u64,
) -> Result<(), Refusal> {
    let program = record.prefix.join("bin/podvisor");
    if record.files.is_empty() || root.kind(&program)?.is_none() {
        return Ok(());
    }
    let now = invocation(host).unwrap_or_default();
    let installed = match record.started.as_ref().filter(|started| started.invocation == now) {
        Some(started) => Some(started.schema),
        None => {
            let said = host.run(&program.to_string_lossy(), &["schema"]).unwrap_or_default();
            said.trim().parse().ok()
        }
    };
    match installed {
        Some(installed) if installed > ours => Err(Refusal::Downgrade { installed, ours }),
        _ => Ok(()),
    }
}

/// systemd's id of the daemon's last start. Empty before the first one since the node's boot.
pub(crate) fn invocation(host: &dyn Host) -> Result<String, CallError> {
    let said = host.run("systemctl", &["show", "--property=InvocationID", "--value", DAEMON])?;
    Ok(said.trim().to_owned())
}

fn space(root: &HostRoot, payload: &Payload) -> Result<(), Refusal> {
    for path in payload.files.iter().map(|file| file.to.as_path()).chain([Path::new(CONFIGURATION)]) {
        if root.space(path)?.read_only {
            return Err(Refusal::ReadOnly(path.to_owned()));
        }
    }
    let mut missing = 0;
    for file in &payload.files {
        if root.kind(&file.to)?.is_none() {
            missing += file.bytes;
        }
    }
    // An upgrade has the longest file twice for a moment.
    let longest = payload.files.iter().map(|file| file.bytes).max().unwrap_or_default();
    let needed_bytes = missing.max(longest) + MARGIN_BYTES;
    let free_bytes = root.space(&payload.prefix)?.free_bytes;
    if free_bytes < needed_bytes {
        return Err(Refusal::NoSpace { path: payload.prefix.clone(), needed_bytes, free_bytes });
    }
    Ok(())
}
