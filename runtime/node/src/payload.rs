//! The files to install: a tree made by `make install DESTDIR=`, in this program's image. There is no list
//! here, so an installation has exactly the files of `make install`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The daemon's configuration. It is written only if there is none.
pub(crate) const CONFIGURATION: &str = "/etc/podvisor/config.toml";

/// The daemon's unit.
pub(crate) const DAEMON: &str = "podvisor.service";

/// The device plugin's unit. It runs only if the operator has enabled it.
pub(crate) const DEVICE_PLUGIN: &str = "podvisor-device-plugin.service";

/// Directory of systemd units besides those of the distribution.
const UNITS: &str = "/etc/systemd/system";

/// Files of a tree. An installation has some sixty.
const FILES_MAX: usize = 10_000;

/// A tree of files for a node.
#[derive(Debug)]
pub(crate) struct Payload {
    /// Directory on the node above the programs, such as `/opt/podvisor`.
    pub(crate) prefix: PathBuf,
    pub(crate) files: Vec<PayloadFile>,
    /// The delivered configuration, with every key commented out except those of the prefix.
    pub(crate) configuration: String,
}

/// A file of the tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PayloadFile {
    /// The file's path in the tree.
    pub(crate) from: PathBuf,
    /// The file's future path on the node.
    pub(crate) to: PathBuf,
    pub(crate) mode: u32,
    pub(crate) bytes: u64,
}

/// An invalid tree.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// A file or directory cannot be read.
    #[error("cannot read {}, a file to be installed", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// A part is missing.
    #[error("{} has no {part}: it is no tree made by make install", tree.display())]
    Lacks {
        /// The tree.
        tree: PathBuf,
        /// The missing part.
        part: &'static str,
    },
}

impl Payload {
    /// Reads the tree.
    pub(crate) fn read(tree: &Path) -> Result<Payload, PayloadError> {
        let lacks = |part| PayloadError::Lacks { tree: tree.to_owned(), part };
        let mut found = Vec::new();
        walk(tree, tree, &mut found)?;
        found.sort_by(|one, other| one.to.cmp(&other.to));
        let place = found.iter().position(|file| file.to == Path::new(CONFIGURATION));
        let configuration = found.remove(place.ok_or_else(|| lacks("etc/podvisor/config.toml"))?).from;
        let configuration = fs::read_to_string(&configuration)
            .map_err(|source| PayloadError::Read { path: configuration, source })?;
        let daemon = found
            .iter()
            .find(|file| file.to.ends_with("bin/podvisor"))
            .ok_or_else(|| lacks("bin/podvisor"))?;
        let prefix =
            daemon.to.parent().and_then(Path::parent).ok_or_else(|| lacks("bin/podvisor"))?.to_owned();
        if !found.iter().any(|file| file.to.ends_with("lib/systemd/system/podvisor.service")) {
            return Err(lacks("podvisor.service"));
        }
        // systemd reads the distribution's directories and those in /etc, and none below another prefix.
        for file in found.iter_mut().filter(|file| prefix != Path::new("/usr") && is_unit(&file.to)) {
            let name = file.to.file_name().expect("a unit has a name");
            file.to = Path::new(UNITS).join(name);
        }
        Ok(Payload { prefix, files: found, configuration })
    }

    /// The daemon's program on the node.
    pub(crate) fn program(&self) -> PathBuf {
        self.prefix.join("bin/podvisor")
    }
}

/// Whether a path of the node is a systemd unit.
pub(crate) fn is_unit(path: &Path) -> bool {
    path.parent().is_some_and(|directory| directory.ends_with("systemd/system"))
}

fn walk(tree: &Path, directory: &Path, found: &mut Vec<PayloadFile>) -> Result<(), PayloadError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| PayloadError::Read { path, source }
    };
    for entry in fs::read_dir(directory).map_err(failed(directory))? {
        let path = entry.map_err(failed(directory))?.path();
        let metadata = fs::symlink_metadata(&path).map_err(failed(&path))?;
        if metadata.is_dir() {
            walk(tree, &path, found)?;
        } else if metadata.is_file() && found.len() < FILES_MAX {
            let inside = path.strip_prefix(tree).expect("a walk stays in its tree");
            let (mode, bytes) = (metadata.permissions().mode() & 0o777, metadata.len());
            found.push(PayloadFile { to: Path::new("/").join(inside), from: path, mode, bytes });
        } else {
            return Err(failed(&path)(std::io::Error::other("no regular file, or one too many")));
        }
    }
    Ok(())
}
