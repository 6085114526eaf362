//! Installs a version of a published volume like the kubelet's atomic writer on the node (kubernetes
//! `pkg/volume/util/atomic_writer.go`). Readers see the old version or the new one, and programs watching the
//! volume's directory by inotify are woken.
//!
//! ```text
//!  1. <volume>/<version>/                  the new version, with its final name
//!  2. <volume>/..data_tmp -> <version>
//!  3. ..data_tmp is renamed to ..data      the new version is in force
//!  4. <volume>/<name> -> ..data/<name>     for new names
//!  5. links to removed names are removed, and versions from before the old one
//!  later: the old version is removed
//! ```
//!
//! The kubelet removes the old version at once. A reader may have followed `..data` to it and find nothing a
//! moment later. A guest may run several times slower than a node, so the old version stays for a moment.
//!
//! The swap may stop after any step. The next swap continues from the state on disk.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use proto_agent::agent::FileAccess;

use super::file::set_access;

/// Link to the version in force.
const DATA: &str = "..data";
/// Link to be renamed to [`DATA`].
const DATA_NEW: &str = "..data_tmp";
/// Longest name of a version, the same as of a file.
const VERSION_BYTES_MAX: usize = 255;

/// Returns true if a version's directory may have this name. The volume's own names are reserved.
pub(super) fn is_version(version: &str) -> bool {
    version.starts_with("..")
        && ![DATA, DATA_NEW, ".."].contains(&version)
        && version.len() <= VERSION_BYTES_MAX
        && !version.contains(['/', '\0'])
}

/// Returns true if the volume has this version. A volume without versions never gets another.
pub(super) fn has(volume: &Path, version: &str) -> bool {
    if version.is_empty() {
        return volume.exists();
    }
    in_force(volume).is_some_and(|found| found == version) && is_whole(volume, version)
}

/// The version in force, if there is one.
pub(super) fn in_force(volume: &Path) -> Option<OsString> {
    Some(fs::read_link(volume.join(DATA)).ok()?.into_os_string())
}

/// Returns true if all steps of the swap to this version were done.
fn is_whole(volume: &Path, version: &str) -> bool {
    let (Ok(wanted), Ok(found)) = (names(&volume.join(version)), names(volume)) else { return false };
    let visible: BTreeSet<_> = found.iter().filter(|name| !is_own(name)).cloned().collect();
    visible == wanted && !found.contains(OsStr::new(DATA_NEW))
}

/// Replaces the volume's version with the one in `incoming`. Access to its files must already be set. `root`
/// is the access to the volume's own directory. Returns the old version, if there is one, for
/// [`remove_version`].
pub(super) fn swap(
    volume: &Path,
    incoming: &Path,
    version: &str,
    root: &FileAccess,
) -> io::Result<Option<OsString>> {
    if version.is_empty() {
        set_access(incoming, root)?;
        return fs::rename(incoming, volume).map(|()| None);
    }
    if !volume.exists() {
        fs::create_dir(volume)?;
    }
    set_access(volume, root)?;
    let old = in_force(volume).filter(|old| old != version);
    STEPS.into_iter().try_for_each(|step| step(volume, incoming, version))?;
    remove_old(volume, version, old.as_deref())?;
    Ok(old)
}

/// Removes a version, unless it is in force.
pub(super) fn remove_version(volume: &Path, version: &OsStr) -> io::Result<()> {
    if in_force(volume).is_some_and(|found| found == version) {
        return Ok(());
    }
    clear(&volume.join(version))
}

/// A step of a swap. Takes the volume, the incoming version, and its name.
type Step = fn(&Path, &Path, &str) -> io::Result<()>;

const STEPS: [Step; 4] = [place, link, put_in_force, show];

fn place(volume: &Path, incoming: &Path, version: &str) -> io::Result<()> {
    let place = volume.join(version);
    if in_force(volume).is_some_and(|found| found == version) {
        // Already in force, and the same content came again.
        return clear(incoming);
    }
    clear(&place)?;
    fs::rename(incoming, place)
}

fn link(volume: &Path, _incoming: &Path, version: &str) -> io::Result<()> {
    remove_link(&volume.join(DATA_NEW))?;
    symlink(version, volume.join(DATA_NEW))
}

fn put_in_force(volume: &Path, _incoming: &Path, _version: &str) -> io::Result<()> {
    fs::rename(volume.join(DATA_NEW), volume.join(DATA))
}

fn show(volume: &Path, _incoming: &Path, version: &str) -> io::Result<()> {
    for name in names(&volume.join(version))? {
        let target = Path::new(DATA).join(&name);
        match symlink(target, volume.join(&name)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made?,
        }
    }
    Ok(())
}

/// Removes everything belonging to neither version.
fn remove_old(volume: &Path, version: &str, old: Option<&OsStr>) -> io::Result<()> {
    let wanted = names(&volume.join(version))?;
    for name in names(volume)? {
        let path = volume.join(&name);
        if !is_own(&name) {
            if !wanted.contains(&name) {
                remove_link(&path)?;
            }
        } else if name != DATA && name != OsStr::new(version) && Some(name.as_os_str()) != old {
            clear(&path)?;
        }
    }
    Ok(())
}

/// Returns true if a name at the top of the volume does not belong to a version.
fn is_own(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"..")
}

fn names(directory: &Path) -> io::Result<BTreeSet<OsString>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
}

fn remove_link(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes one of the agent's directories, or a link, if it exists.
pub(super) fn clear(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Runs only the first steps of a swap, for tests of an interrupted one.
#[cfg(test)]
pub(super) fn first_steps(volume: &Path, incoming: &Path, version: &str, count: usize) -> io::Result<()> {
    if !volume.exists() {
        fs::create_dir(volume)?;
    }
    STEPS.into_iter().take(count).try_for_each(|step| step(volume, incoming, version))
}
