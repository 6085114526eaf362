//! A snapshot of all files at one moment, valid or not.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::directory::CdiFile;
use crate::fault::{Fault, FaultError};
use crate::name::DeviceName;

/// All files at one moment.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) files: Vec<CdiFile>,
    pub(crate) faults: Vec<Fault>,
}

impl Snapshot {
    /// Number of valid files.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// The qualified names of all requestable devices, in order.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceName> {
        let defined = self.defined();
        defined.into_iter().filter(|(_, files)| files.len() == 1).map(|(name, _)| name).collect()
    }

    /// All faults: unusable files, and devices with several definitions.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut all = self.faults.clone();
        for (name, files) in self.defined() {
            let Some((first, others)) = files.split_first() else { continue };
            if others.is_empty() {
                continue;
            }
            let others: Vec<_> = others.iter().map(|file| file.path.display().to_string()).collect();
            let error = FaultError::Conflict { name: name.to_string(), others: others.join(", ") };
            all.push(Fault { path: first.path.to_path_buf(), kind: Some(name.kind().clone()), error });
        }
        all
    }

    /// Each device with its defining files, from the highest directory with a definition.
    fn defined(&self) -> BTreeMap<DeviceName, Vec<&CdiFile>> {
        let mut defined: BTreeMap<DeviceName, Vec<&CdiFile>> = BTreeMap::new();
        // The files are in the order of their ranks.
        for file in &self.files {
            for name in file.content.devices.keys() {
                let Ok(name) = DeviceName::new(file.content.kind.clone(), name) else { continue };
                let files = defined.entry(name).or_default();
                files.retain(|known| known.rank == file.rank);
                files.push(file);
            }
        }
        defined
    }
}
