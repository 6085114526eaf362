//! A process's working directory, made where the container lacks it: users name directories that their image does
//! not have, and other runtimes make them, owned by root.
//!
//! The root file system and volumes are hostile: links must never lead out of them.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use libcontainer::oci_spec::runtime::{Mount, Spec};
use nix::unistd::{setfsgid, setfsuid};
use rustix::fs::{CWD, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

/// Why the working directory could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make the working directory {path}")]
pub struct WorkingDirectoryError {
    path: PathBuf,
    source: io::Error,
}

/// Makes the working directory of the specification's process below the mounted root, or in the volume that will be
/// mounted over that place. `owner` is the user and group of new directories: the container's root.
pub fn make(spec: &Spec, owner: (u32, u32)) -> Result<(), WorkingDirectoryError> {
    let (Some(root), Some(process)) = (spec.root(), spec.process()) else { return Ok(()) };
    let path = process.cwd();
    let mounts = spec.mounts().as_deref().unwrap_or_default();
    let Some((base, rest)) = place(root.path(), path, mounts) else { return Ok(()) };
    make_below(&base, &rest, owner)
        .map_err(|errno| WorkingDirectoryError { path: path.clone(), source: errno.into() })
}

/// The directory to start from, and the names below it; `None` where no directory can be made: in the kernel's file
/// systems and in read-only mounts.
fn place(root: &Path, path: &Path, mounts: &[Mount]) -> Option<(PathBuf, PathBuf)> {
    let path = clean(path);
    // Of equal destinations the last mount is on top.
    let over = mounts
        .iter()
        .filter(|mount| clean(mount.destination()).components().count() > 1)
        .filter_map(|mount| Some((mount, path.strip_prefix(clean(mount.destination())).ok()?)))
        .min_by_key(|(_, rest)| rest.components().count());
    let Some((mount, rest)) = over else {
        return Some((root.to_owned(), path.strip_prefix("/").ok()?.to_owned()));
    };
    let has = |wanted: &str| mount.options().iter().flatten().any(|option| option == wanted);
    let bound = mount.typ().as_deref() == Some("bind") || has("bind") || has("rbind");
    if !bound || has("ro") || has("rro") {
        return None;
    }
    Some((mount.source().clone()?, rest.to_owned()))
}

/// The path without `.` and `..`, as a path from the root.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            _ => {}
        }
    }
    clean
}

fn make_below(base: &Path, rest: &Path, (uid, gid): (u32, u32)) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, base, flags, Mode::empty())?;
    let open = |path: &Path| -> Result<OwnedFd, Errno> {
        rustix::fs::openat2(
            &root,
            path,
            flags,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        )
    };
    let (mut parent, mut path) = (open(Path::new("."))?, PathBuf::new());
    for name in rest {
        path.push(name);
        parent = match open(&path) {
            Err(Errno::NOENT) => {
                make_one(&parent, name, (uid, gid))?;
                let made = open(&path)?;
                let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
                rustix::fs::chownat(&made, "", Some(uid), Some(gid), rustix::fs::AtFlags::EMPTY_PATH)?;
                made
            }
            // The process's own chdir reports a file in the place of a directory.
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            found => found?,
        };
    }
    Ok(())
}

/// Makes one directory. A volume whose owners are mapped cannot store this process's own user, and takes only files
/// that a mapped user makes.
fn make_one(parent: &OwnedFd, name: &OsStr, (uid, gid): (u32, u32)) -> Result<(), Errno> {
    let make = || rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755));
    match make() {
        Err(Errno::OVERFLOW) => {
            let (gid, uid) = (setfsgid(gid.into()), setfsuid(uid.into()));
            let made = make();
            setfsuid(uid);
            setfsgid(gid);
            made
        }
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use serde_json::json;

    use super::*;

    fn make_in(root: &Path, cwd: &str, mounts: &serde_json::Value) -> Result<(), WorkingDirectoryError> {
        let own = std::fs::metadata(root).unwrap();
        let spec = json!({ "ociVersion": "1.1.0", "root": { "path": root }, "mounts": mounts,
            "process": { "user": { "uid": 0, "gid": 0 }, "cwd": cwd } });
        make(&serde_json::from_value(spec).unwrap(), (own.uid(), own.gid()))
    }

    #[test]
    fn missing_directories_are_made_and_present_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        make_in(dir.path(), "/a/./b/../c", &json!([])).unwrap();
        assert!(dir.path().join("a/c").is_dir() && !dir.path().join("a/b").exists());
        make_in(dir.path(), "/a/c", &json!([])).unwrap();
        make_in(dir.path(), "/", &json!([])).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        make_in(dir.path(), "/file/x", &json!([])).unwrap();
        assert!(dir.path().join("file").is_file());
    }

    #[test]
    fn links_do_not_lead_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("srv")).unwrap();
        symlink("/srv", root.join("inside")).unwrap();
        symlink("../../..", root.join("up")).unwrap();
        make_in(&root, "/inside/x", &json!([])).unwrap();
        make_in(&root, "/up/y", &json!([])).unwrap();
        assert!(root.join("srv/x").is_dir() && root.join("y").is_dir());
        symlink("/nowhere", root.join("dangling")).unwrap();
        assert!(make_in(&root, "/dangling/z", &json!([])).is_err());
    }

    #[test]
    fn a_volume_over_the_place_gets_the_directory_unless_it_is_read_only() {
        let dir = tempfile::tempdir().unwrap();
        let (root, volume) = (dir.path().join("root"), dir.path().join("volume"));
        for path in [&root, &volume] {
            std::fs::create_dir(path).unwrap();
        }
        let mount = |options: &[&str]| json!([{ "destination": "/data", "type": "bind", "source": volume, "options": options }]);
        make_in(&root, "/data/ro", &mount(&["rbind", "ro"])).unwrap();
        assert!(!volume.join("ro").exists());
        make_in(&root, "/data/x/y", &mount(&["rbind"])).unwrap();
        assert!(volume.join("x/y").is_dir() && !root.join("data").exists());
        let proc = json!([{ "destination": "/proc", "type": "proc", "source": "proc" }]);
        make_in(&root, "/proc/none", &proc).unwrap();
        assert!(!root.join("proc").exists());
    }
}
