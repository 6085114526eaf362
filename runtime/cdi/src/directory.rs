//! The directories, and the reading of their files in the order of their names, within bounds.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::check::Checked;
use crate::fault::{Fault, FaultError};
use crate::file::{self, ALL_BYTES_MAX, Language};

/// Most CDI files of one directory. Drivers write one for each claim, so some for each pod of the node.
const FILES_MAX: usize = 1024;

/// Most entries read from one directory, of any name.
const ENTRIES_MAX: usize = 16 * FILES_MAX;

/// A valid file.
#[derive(Debug)]
pub(crate) struct CdiFile {
    pub(crate) path: Arc<Path>,
    /// The number of its directory. If a device is defined twice, the higher rank wins.
    pub(crate) rank: usize,
    pub(crate) content: Checked,
}

/// Reads all files of the directories. These are given in the order of their ranks.
pub(crate) fn read(directories: &[PathBuf]) -> (Vec<CdiFile>, Vec<Fault>) {
    let (mut files, mut faults) = (Vec::new(), Vec::new());
    let mut bytes_left = ALL_BYTES_MAX;
    for (rank, directory) in directories.iter().enumerate() {
        for (path, language) in list(directory, &mut faults) {
            let (bytes, read) = file::read(&path, language, bytes_left);
            bytes_left = bytes_left.saturating_sub(bytes);
            match read {
                Ok(content) => files.push(CdiFile { path: path.into(), rank, content }),
                Err(fault) => faults.push(*fault),
            }
        }
    }
    (files, faults)
}

/// The CDI files of a directory, by name. Subdirectories are ignored, and a missing directory counts as
/// empty.
fn list(directory: &Path, faults: &mut Vec<Fault>) -> Vec<(PathBuf, Language)> {
    let mut fault = |error| faults.push(Fault { path: directory.to_owned(), kind: None, error });
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            fault(FaultError::io(&error));
            return Vec::new();
        }
    };
    let mut files = Vec::new();
    for (number, entry) in entries.enumerate() {
        let entry: io::Result<_> = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)));
        match entry {
            _ if number == ENTRIES_MAX => {
                fault(FaultError::ManyFiles { max: ENTRIES_MAX });
                break;
            }
            Ok((path, kind)) => {
                let Some(language) = Language::of(&path).filter(|_| !kind.is_dir()) else { continue };
                if files.len() == FILES_MAX {
                    fault(FaultError::ManyFiles { max: FILES_MAX });
                    break;
                }
                files.push((path, language));
            }
            Err(error) => {
                fault(FaultError::io(&error));
                break;
            }
        }
    }
    files.sort();
    files
}
