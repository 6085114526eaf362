//! Resolves names of devices to edits. Pure.

use std::sync::Arc;

use crate::directory::CdiFile;
use crate::edits::{Edits, Origin};
use crate::fault::Fault;
use crate::name::DeviceName;
use crate::snapshot::Snapshot;

/// Most faults listed in a message. `podvisor check` lists all.
const FAULTS_LISTED_MAX: usize = 4;

/// Reason why a device has no edits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ResolveError {
    #[error("CDI device {name}: no file in {directories} defines it")]
    Undefined { name: DeviceName, directories: String },
    #[error("CDI device {name}: no file without errors defines it, and one with errors may: {faults}")]
    Faulty { name: DeviceName, faults: String },
    #[error("CDI device {name}: several files of the same rank define it: {files}")]
    Conflict { name: DeviceName, files: String },
}

impl Snapshot {
    /// The edits of the named devices, in the order of their application.
    pub(crate) fn resolve(&self, names: &[DeviceName]) -> Result<Vec<(Origin, Edits)>, ResolveError> {
        let mut resolved: Vec<(Origin, Edits)> = Vec::new();
        let mut done: Vec<&DeviceName> = Vec::new();
        for name in names {
            if done.contains(&name) {
                continue;
            }
            done.push(name);
            let file = self.file_of(name)?;
            let origin = Origin { device: name.clone(), file: Arc::clone(&file.path) };
            // The file's common edits come once, before those of its first device.
            if resolved.iter().all(|(known, _)| known.file != file.path) {
                resolved.push((origin.clone(), file.content.edits.clone()));
            }
            if let Some(edits) = file.content.devices.get(name.name()) {
                resolved.push((origin, edits.clone()));
            }
        }
        Ok(resolved)
    }

    fn file_of(&self, name: &DeviceName) -> Result<&CdiFile, ResolveError> {
        let defined = definitions(&self.files, name);
        match defined.as_slice() {
            [file] => Ok(file),
            [] => Err(self.undefined(name)),
            files => {
                let files: Vec<_> = files.iter().map(|file| file.path.display().to_string()).collect();
                Err(ResolveError::Conflict { name: name.clone(), files: files.join(", ") })
            }
        }
    }

    fn undefined(&self, name: &DeviceName) -> ResolveError {
        let may_define = |fault: &&Fault| fault.kind.as_ref().is_none_or(|kind| kind == name.kind());
        let faults: Vec<&Fault> = self.faults.iter().filter(may_define).collect();
        let name = name.clone();
        if faults.is_empty() {
            let directories: Vec<_> = self.directories.iter().map(|dir| dir.display().to_string()).collect();
            return ResolveError::Undefined { name, directories: directories.join(" and ") };
        }
        let mut listed: Vec<_> = faults.iter().take(FAULTS_LISTED_MAX).map(ToString::to_string).collect();
        if let Some(more) = faults.len().checked_sub(FAULTS_LISTED_MAX + 1) {
            listed.push(format!("{} more, listed by `podvisor check`", more + 1));
        }
        ResolveError::Faulty { name, faults: listed.join("; ") }
    }
}

/// The files defining a device, from the highest directory with a definition. Normally there is one.
fn definitions<'a>(files: &'a [CdiFile], name: &DeviceName) -> Vec<&'a CdiFile> {
    let defines =
        |file: &&CdiFile| file.content.kind == *name.kind() && file.content.devices.contains_key(name.name());
    let all: Vec<&CdiFile> = files.iter().filter(defines).collect();
    let rank = all.iter().map(|file| file.rank).max();
    all.into_iter().filter(|file| Some(file.rank) == rank).collect()
}
