//! Files of the installation: the VMM's program and the guest's boot files. An upgrade or a removal of the
//! package replaces them while the daemon runs, file by file. A daemon keeps its files open, so it starts
//! every pod from its own installation until it is restarted itself.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runtime_blocking::in_place;

use crate::build_id;
use crate::digests::{DigestError, Digests};

/// A file of the installation.
#[derive(Clone, Debug)]
pub struct InstalledFile {
    path: PathBuf,
    /// `None` for a file opened by its path each time.
    kept: Option<Arc<Kept>>,
}

/// A file kept open as long as the daemon runs.
#[derive(Debug)]
struct Kept {
    file: File,
    /// See [`InstalledFile::build`].
    build: Option<String>,
}

impl InstalledFile {
    /// Opens the file and keeps it open.
    ///
    /// # Errors
    /// The file is not there, or cannot be read.
    pub fn keep(path: &Path) -> io::Result<InstalledFile> {
        let file = File::open(path)?;
        let build = build_id::of(&file).ok();
        Ok(InstalledFile { path: path.to_owned(), kept: Some(Arc::new(Kept { file, build })) })
    }

    /// Compares the file with its directory's list of digests. Reads all of the file.
    ///
    /// # Errors
    /// The file differs from the installed one, or cannot be read.
    pub fn check(&self, digests: &Digests) -> Result<(), DigestError> {
        self.kept.as_ref().map_or(Ok(()), |kept| digests.check(&self.path, &kept.file))
    }

    /// The file's name, for messages.
    pub(crate) fn name(&self) -> &Path {
        &self.path
    }

    /// Whether the file is kept open, and so never changes.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// The build of the file for new pods, from `build_id.rs`; `None` if it cannot be read.
    pub(crate) fn build(&self) -> Option<String> {
        match &self.kept {
            Some(kept) => kept.build.clone(),
            None => build_id::of(&File::open(&self.path).ok()?).ok(),
        }
    }

    /// A path to the file, valid in this process and in a child before its exec. It is the file's own path
    /// while this still leads to the file, else the descriptor's. The kernel opens the latter again, so
    /// positions are not shared (proc_pid_fd(5)). Reads the file's directory.
    pub(crate) fn path(&self) -> PathBuf {
        let Some(kept) = &self.kept else { return self.path.clone() };
        let file = |file: fs::Metadata| (file.dev(), file.ino());
        let (named, held) = in_place(|| (fs::metadata(&self.path).map(file), kept.file.metadata().map(file)));
        match (named, held) {
            (Ok(named), Ok(held)) if named == held => self.path.clone(),
            _ => format!("/proc/self/fd/{}", kept.file.as_raw_fd()).into(),
        }
    }
}

/// A file opened by its path each time. It need not exist yet.
impl From<PathBuf> for InstalledFile {
    fn from(path: PathBuf) -> Self {
        InstalledFile { path, kept: None }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    fn content(file: &InstalledFile) -> String {
        fs::read_to_string(file.path()).unwrap()
    }

    #[test]
    fn a_kept_file_is_the_same_when_it_was_replaced_and_when_it_was_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("root.erofs");
        fs::write(&path, "old").unwrap();
        let (kept, named) = (InstalledFile::keep(&path).unwrap(), InstalledFile::from(path.clone()));
        assert_eq!((kept.path(), content(&kept)), (path.clone(), "old".into()));
        // As dpkg replaces a file: a new one is renamed over it.
        let new = dir.path().join("root.erofs.dpkg-new");
        fs::write(&new, "new").unwrap();
        fs::rename(&new, &path).unwrap();
        assert_eq!((content(&kept), content(&named)), ("old".into(), "new".into()));
        fs::remove_file(&path).unwrap();
        assert_eq!(content(&kept), "old");
        assert!(File::open(named.path()).is_err());
        assert_eq!(kept.name(), path);
    }

    #[test]
    fn readers_of_a_removed_file_do_not_share_a_position() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vmlinux");
        fs::write(&path, "abcd").unwrap();
        let kept = InstalledFile::keep(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (mut one, mut other) = (File::open(kept.path()).unwrap(), File::open(kept.path()).unwrap());
        let mut half = [0; 2];
        one.read_exact(&mut half).unwrap();
        other.read_exact(&mut half).unwrap();
        assert_eq!(&half, b"ab");
    }

    #[test]
    fn a_removed_program_can_be_executed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        fs::copy("/bin/true", &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let kept = InstalledFile::keep(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(Command::new(kept.path()).env_clear().current_dir("/").status().unwrap().success());
    }

    #[test]
    fn a_file_that_is_not_there_cannot_be_kept() {
        let error = InstalledFile::keep(Path::new("/no/such/file")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
