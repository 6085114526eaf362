//! The digests of an installation's files: `SHA256SUMS` beside them, as sha256sum(1) writes it, made by
//! `make install`. A damaged disk, a bad copy or a broken update is found before a guest boots from it. This
//! is no wall: an attacker able to change the files can change the list too.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The list's name in the files' directory.
const LIST: &str = "SHA256SUMS";

/// Longest list, in bytes: an installation has a handful of files.
const LIST_BYTES_MAX: u64 = 64 << 10;

/// Bytes of a file read at once.
const PIECE_BYTES: usize = 1 << 20;

/// The list of a directory.
#[derive(Debug)]
pub struct Digests {
    path: PathBuf,
    /// Digests in hexadecimal by file name; `None` without a list.
    by_name: Option<BTreeMap<String, String>>,
}

/// A file differs from the installed one, or cannot be compared.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum DigestError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not a list of digests: line {line} is not a digest and a name", path.display())]
    List { path: PathBuf, line: usize },
    #[error("{} has changed since its installation: its SHA-256 digest is {found}, but {} has {listed}", path.display(), list.display())]
    Differs { path: PathBuf, found: String, list: PathBuf, listed: String },
}

impl Digests {
    /// Reads the list of a directory. There may be none.
    ///
    /// # Errors
    /// The list cannot be read, or a line of it is invalid.
    pub fn of(directory: &Path) -> Result<Digests, DigestError> {
        let path = directory.join(LIST);
        let mut text = String::new();
        match File::open(&path).and_then(|file| file.take(LIST_BYTES_MAX).read_to_string(&mut text)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Digests { path, by_name: None });
            }
            Err(source) => return Err(DigestError::Read { path, source }),
        }
        let mut by_name = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let Some((digest, name)) = entry(line) else {
                return Err(DigestError::List { path, line: index + 1 });
            };
            by_name.insert(name.to_owned(), digest.to_owned());
        }
        Ok(Digests { path, by_name: Some(by_name) })
    }

    /// Returns true if the directory has a list.
    pub fn are_there(&self) -> bool {
        self.by_name.is_some()
    }

    /// Compares a file of the directory with the list. An unlisted file passes.
    ///
    /// # Errors
    /// The file has another digest, or cannot be read.
    pub fn check(&self, path: &Path, file: &File) -> Result<(), DigestError> {
        let name = path.file_name().and_then(|name| name.to_str());
        let listed = name.and_then(|name| self.by_name.as_ref()?.get(name));
        let Some(listed) = listed else { return Ok(()) };
        let found = digest(file).map_err(|source| DigestError::Read { path: path.to_owned(), source })?;
        if found == *listed {
            return Ok(());
        }
        let (path, list, listed) = (path.to_owned(), self.path.clone(), listed.clone());
        Err(DigestError::Differs { path, found, list, listed })
    }
}

/// A line's digest and name. Two characters separate them; the second is sha256sum's mode of reading.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (digest, name) = line.split_once(' ')?;
    let is_digest =
        digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let name = name.strip_prefix([' ', '*'])?;
    (is_digest && !name.is_empty()).then_some((digest, name))
}

/// The digest of a file's bytes. The file's position stays.
fn digest(file: &File) -> io::Result<String> {
    let (mut hasher, mut piece, mut at) = (Sha256::new(), vec![0; PIECE_BYTES], 0);
    loop {
        let count = file.read_at(&mut piece, at)?;
        if count == 0 {
            return Ok(hex::encode(hasher.finalize()));
        }
        hasher.update(&piece[..count]);
        at += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// `printf kernel | sha256sum`.
    const OF_KERNEL: &str = "6923dd1bc0460082c5d55a831908c24a282860b7f1cd6c2b79cf1bc8857c639c";

    fn installed(list: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("vmlinux"), "kernel").unwrap();
        fs::write(dir.path().join(LIST), list).unwrap();
        dir
    }

    fn check(dir: &tempfile::TempDir) -> Result<(), String> {
        let path = dir.path().join("vmlinux");
        let digests = Digests::of(dir.path()).map_err(|error| error.to_string())?;
        digests.check(&path, &File::open(&path).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_unchanged_file_passes_and_a_changed_one_is_named() {
        let dir = installed(&format!("{OF_KERNEL}  vmlinux\n"));
        check(&dir).unwrap();
        fs::write(dir.path().join("vmlinux"), "Kernel").unwrap();
        let error = check(&dir).unwrap_err();
        assert!(error.contains("/vmlinux has changed since its installation"), "{error}");
        assert!(error.contains(OF_KERNEL) && error.contains(LIST), "{error}");
    }

    #[test]
    fn without_a_list_or_a_line_nothing_is_compared() {
        let dir = installed("");
        check(&dir).unwrap();
        fs::remove_file(dir.path().join(LIST)).unwrap();
        assert!(!Digests::of(dir.path()).unwrap().are_there());
        check(&dir).unwrap();
    }

    #[test]
    fn an_invalid_list_is_refused_with_its_line() {
        let zeros = "0".repeat(64);
        for (text, line) in [
            (format!("{zeros}  a\nnonsense\n"), "line 2"),
            (format!("{zeros} a\n"), "line 1"),
            (format!("{}  a\n", &zeros[1..]), "line 1"),
            (format!("{}  a\n", "G".repeat(64)), "line 1"),
            (format!("{zeros}  \n"), "line 1"),
        ] {
            let error = check(&installed(&text)).unwrap_err();
            assert!(error.contains("not a list of digests") && error.contains(line), "{error}");
        }
        check(&installed(&format!("{zeros} *other\n"))).unwrap();
    }
}
