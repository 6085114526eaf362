//! The removal: the kubelet's way back, then the daemon, then the files. Every step may be repeated, and the
//! record goes last.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::host::{CallError, Host};
use crate::install;
use crate::kubelet::KubeletError;
use crate::kubelet_runtime::{KubeletRuntime, kubelet_runtime};
use crate::leave::{self, LeaveError};
use crate::payload::{CONFIGURATION, DAEMON, DEVICE_PLUGIN};
use crate::record::{Held, InstallRecord, RecordError};
use crate::report::{Report, say};
use crate::root::{HostRoot, RootError};
use crate::settings::{Settings, SettingsError};

/// Directories of state in their default places. State elsewhere, by configuration, stays.
const STATE: &[&str] = &["/run/podvisor", "/var/lib/podvisor", "/var/lib/cni/podvisor"];

/// The longest list of mounts to read, in bytes: some ten thousand mounts.
const MOUNTS_BYTES_MAX: u64 = 16 << 20;

/// A requested removal.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemoveSpec {
    /// Whether to end pods in VMs. Otherwise they prevent the removal.
    pub force: bool,
    /// Whether configuration and state go, too.
    pub purge: bool,
}

/// An incomplete removal. Running it again continues it.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The kubelet did not go back.
    #[error(transparent)]
    Leave(#[from] LeaveError),
    /// A disk of the node failed.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The record is in use or damaged.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// systemd failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A kubelet that somebody else switched to Podvisor.
    #[error(
        "the kubelet uses Podvisor ({}), and was not switched by this program: give it another runtime first",
        .0.display()
    )]
    InUse(PathBuf),
    /// The node's configuration cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The node's kubelet cannot be seen.
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    /// Something is mounted in the state's directories.
    #[error("{0} on the node is still mounted: unmount it, and run this again")]
    Mounted(String),
}

/// Undoes [`install`](crate::install()).
///
/// # Errors
/// VMs run, a step failed, or an installation is under way.
pub fn remove(
    root: &HostRoot,
    host: &dyn Host,
    spec: RemoveSpec,
    report: Report<'_>,
) -> Result<(), RemoveError> {
    if Held::peek(root)?.is_none() {
        say(report, "node", "has nothing installed by this program");
        return Ok(());
    }
    let held = Held::take(root)?;
    let mut record = held.record.clone().unwrap_or_default();
    if record.kubelet.is_none()
        && let Some(socket) = in_use(root, host)?
    {
        return Err(RemoveError::InUse(socket));
    }
    leave::way_back(root, host, &mut record, spec.force, report)?;
    units(root, host, &record, report)?;
    // Not earlier: a running daemon has mounts for pooled VMMs.
    if spec.purge
        && let Some(place) = mounted(root)?
    {
        return Err(RemoveError::Mounted(place));
    }
    files(root, &record, report)?;
    host.run("systemctl", &["daemon-reload"])?;
    if spec.purge {
        purge(root)?;
        say(report, "state", "configuration and state were taken away");
    } else {
        say(report, "state", format!("stays, and so does {CONFIGURATION}; --purge takes both away"));
    }
    install::clear(root)?;
    leave::clear(root)?;
    held.remove(root)?;
    Ok(())
}

/// The daemon's socket, if the node's kubelet uses it.
fn in_use(root: &HostRoot, host: &dyn Host) -> Result<Option<PathBuf>, RemoveError> {
    let Some(settings) = Settings::read(root)? else { return Ok(None) };
    let is_used = kubelet_runtime(root, host, &settings.socket)? == KubeletRuntime::Podvisor;
    Ok(is_used.then_some(settings.socket))
}

/// Stops and disables our units.
fn units(
    root: &HostRoot,
    host: &dyn Host,
    record: &InstallRecord,
    report: Report<'_>,
) -> Result<(), RemoveError> {
    for unit in [DEVICE_PLUGIN, DAEMON] {
        let Some(path) = record.files.iter().find(|path| path.ends_with(unit)) else { continue };
        if root.kind(path)?.is_some() {
            host.run("systemctl", &["disable", "--now", unit])?;
        }
    }
    say(report, "daemon", "does not run");
    Ok(())
}

fn files(root: &HostRoot, record: &InstallRecord, report: Report<'_>) -> Result<(), RemoveError> {
    let mut removed = 0;
    let mut directories = BTreeSet::new();
    for path in &record.files {
        removed += usize::from(root.remove(path)?);
        directories.extend(path.ancestors().skip(1).filter(|directory| is_ours(directory)));
    }
    // The deepest directories come last in order.
    for directory in directories.into_iter().rev() {
        root.remove_if_empty(directory)?;
    }
    say(report, "files", format!("{removed} of {} taken away", record.files.len()));
    Ok(())
}

/// Whether a directory has Podvisor's name in its path, so it is ours alone.
fn is_ours(directory: &Path) -> bool {
    directory.iter().any(|part| part == "podvisor")
}

fn purge(root: &HostRoot) -> Result<(), RootError> {
    root.remove(Path::new(CONFIGURATION))?;
    root.remove_if_empty(Path::new("/etc/podvisor"))?;
    STATE.iter().try_for_each(|place| root.remove_tree(Path::new(place)))
}

/// Returns a mount point below the state's directories. Blanks and the like are octal there
/// (proc_pid_mountinfo(5)). They do not change the comparison of prefixes.
fn mounted(root: &HostRoot) -> Result<Option<String>, RootError> {
    let text = root.read(Path::new("/proc/1/mountinfo"), MOUNTS_BYTES_MAX)?.unwrap_or_default();
    let places = text.lines().filter_map(|line| line.split(' ').nth(4));
    let below = |place: &&str| {
        STATE.iter().any(|state| Path::new(place).starts_with(state) && Path::new(place) != Path::new(state))
    };
    Ok(places.into_iter().find(below).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_with_the_name_of_podvisor_are_taken_away() {
        let path = PathBuf::from("/opt/podvisor/share/man/man1/podvisor.1");
        let ours: Vec<_> = path.ancestors().skip(1).filter(|directory| is_ours(directory)).collect();
        assert_eq!(ours.len(), 4, "{ours:?}");
        assert!(!is_ours(Path::new("/usr/bin")) && is_ours(Path::new("/usr/lib/podvisor")));
    }
}
