//! The registry: the CDI directories, with access to their files.

use std::path::PathBuf;

use crate::edits::{Edits, Origin};
use crate::name::DeviceName;
use crate::resolve::ResolveError;
use crate::snapshot::Snapshot;
use crate::{directory, node};

/// The directories of CDI files (SPEC.md, "Overview", and the library's default): files of installers,
/// overridden by files of running drivers.
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
    /// Creates the registry of these directories. A later one has the higher rank.
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

    /// Reads all files, and returns the edits of the named devices in the order of their application, each
    /// with its source. The first device of a file also brings the edits common to the file. Inspects each
    /// device node on the node. Blocks on the disk.
    ///
    /// # Errors
    /// A device is defined by no file or by two, or only a file with a fault may define it.
    pub fn resolve(&self, names: &[DeviceName]) -> Result<Vec<(Origin, Edits)>, ResolveError> {
        let mut resolved = self.read().resolve(names)?;
        for node in resolved.iter_mut().flat_map(|(_, edits)| &mut edits.device_nodes) {
            node.found = node::look(&node.host_path);
        }
        Ok(resolved)
    }
}
