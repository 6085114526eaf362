//! Sources of mounts on the node: made for one run of a case, and looked at when it has ended.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Result;
use walkdir::{DirEntry, WalkDir};

use crate::case::Mount;
use crate::tree;

/// The paths of a run's sources, in the order of the case's mounts.
#[derive(Debug)]
pub(crate) struct Sources {
    paths: Vec<PathBuf>,
    made: Vec<bool>,
}

impl Sources {
    /// Makes the sources below a directory of the run's own.
    ///
    /// # Errors
    /// If an entry is invalid, or the directory cannot be written.
    pub(crate) fn make(mounts: &[Mount], below: &Path) -> Result<Sources> {
        let (mut paths, mut made) = (Vec::new(), Vec::new());
        for (number, mount) in mounts.iter().enumerate() {
            let path = below.join(format!("source{number}"));
            if let Some(content) = &mount.file {
                fs::write(&path, content)?;
            } else if mount.node.is_none() && !mount.missing {
                fs::create_dir(&path)?;
                tree::write(&mount.tree, &path)?;
            }
            made.push(mount.node.is_none());
            paths.push(mount.node.as_ref().map_or(path, PathBuf::from));
        }
        Ok(Sources { paths, made })
    }

    /// Paths of the sources on the node.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The sources' present content, a line for each entry. The node's own entries are left out.
    pub(crate) fn found(&self) -> Vec<String> {
        let sources = self.paths.iter().zip(&self.made).enumerate().filter(|(_, (_, made))| **made);
        sources.flat_map(|(number, (path, _))| below(number, path)).collect()
    }
}

fn below(number: usize, path: &Path) -> Vec<String> {
    let entries = WalkDir::new(path).sort_by_file_name().into_iter().filter_map(Result::ok);
    entries.filter_map(|entry| described(&entry, path).map(|text| format!("source{number}{text}"))).collect()
}

/// An entry's path, kind, mode, owner, and size or target.
fn described(entry: &DirEntry, root: &Path) -> Option<String> {
    let metadata = entry.metadata().ok()?;
    let kind = metadata.file_type();
    let name = entry.path().strip_prefix(root).ok()?;
    let (letter, rest) = if kind.is_symlink() {
        ('l', format!(" -> {}", fs::read_link(entry.path()).ok()?.display()))
    } else if kind.is_dir() {
        ('d', String::new())
    } else if kind.is_file() {
        ('f', format!(" {} bytes", metadata.len()))
    } else if kind.is_fifo() {
        ('p', String::new())
    } else if kind.is_socket() {
        ('s', String::new())
    } else {
        ('x', String::new())
    };
    let (mode, uid, gid) = (metadata.mode() & 0o7777, metadata.uid(), metadata.gid());
    Some(format!("/{} {letter} {mode:04o} {uid}:{gid}{rest}", name.display()))
}
