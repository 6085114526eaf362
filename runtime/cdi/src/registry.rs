//! The registry: the directories, and the ways to what is in them.

use std::path::PathBuf;

use crate::edits::{Edits, Origin};
use crate::name::DeviceName;
use crate::resolve::ResolveError;
use crate::snapshot::Snapshot;
use crate::{directory, node};

/// The directories of CDI files (SPEC.md, "Overview", and the library's default): files of installers, and above them
/// files of drivers that run.
const DIRECTORIES: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// The directories of CDI files.
#[derive(Clone, Debug)]
pub struct Registry {
    directories: Vec<PathBuf>,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::new(DIRECTORIES.map(PathBuf::from).into())
    }
}

impl Registry {
    /// The registry of these directories; a later one has the higher rank.
    #[must_use]
    pub fn new(directories: Vec<PathBuf>) -> Registry {
        Registry { directories }
    }

    /// Reads all files. Blocks on the disk.
    #[must_use]
    pub fn read(&self) -> Snapshot {
        let (files, faults) = directory::read(&self.directories);
        Snapshot { directories: self.directories.clone(), files, faults }
    }

    /// Reads all files, and returns the edits of the named devices in the order of their application, each with its
    /// source. Edits of a file as a whole come with its first device. Looks at each device node on the node. Blocks on
    /// the disk.
    ///
    /// # Errors
    /// A device that no file defines, that a file with a fault may define, or that two files define.
    pub fn resolve(&self, names: &[DeviceName]) -> Result<Vec<(Origin, Edits)>, ResolveError> {
        let mut resolved = self.read().resolve(names)?;
        for node in resolved.iter_mut().flat_map(|(_, edits)| &mut edits.device_nodes) {
            node.found = node::look(&node.host_path);
        }
        Ok(resolved)
    }
}
