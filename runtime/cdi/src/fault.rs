//! Faults: unusable files, each with its reason.

use std::fmt::{self, Write};
use std::io;
use std::path::PathBuf;

use crate::name::{Kind, NameError};

/// Most characters of a fault as text. Errors quote names and values from the file, and these can have any
/// length.
const LETTERS_MAX: usize = 1024;

/// An unusable file or directory. As text, a fault is one line of bounded length, whatever the file holds.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The file or directory.
    pub path: PathBuf,
    /// The kind of the file's devices, if it is readable. Otherwise they may be of any kind.
    pub kind: Option<Kind>,
    /// The reason.
    pub error: FaultError,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}: {}", self.path.display(), self.error);
        for letter in text.chars().take(LETTERS_MAX) {
            if letter.is_control() {
                write!(f, "{}", letter.escape_default())?;
            } else {
                f.write_char(letter)?;
            }
        }
        if text.chars().nth(LETTERS_MAX).is_some() { f.write_char('…') } else { Ok(()) }
    }
}

/// Reason why a file or a directory cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum FaultError {
    #[error("{0}")]
    Io(String),
    #[error("is no regular file")]
    NoFile,
    #[error("has {bytes} bytes, and {bytes_max} are read at most")]
    Large { bytes: u64, bytes_max: u64 },
    #[error("is not read: the files before it have {bytes_max} bytes together")]
    LargeTogether { bytes_max: u64 },
    #[error("holds more than {max} files, and the rest is not read")]
    ManyFiles { max: usize },
    #[error("is not UTF-8")]
    NotUtf8,
    #[error("{0}")]
    Syntax(String),
    #[error("cdiVersion {version:?} is not known; versions from {oldest} to {newest} are")]
    Version { version: String, oldest: &'static str, newest: &'static str },
    #[error("{field} came with version {needed}, and the file's cdiVersion is {version}")]
    Newer { field: &'static str, needed: String, version: String },
    #[error("{field}: {error}")]
    Name { field: &'static str, error: NameError },
    #[error("devices: there is none")]
    NoDevices,
    #[error("devices: {0:?} is there twice")]
    TwoDevices(String),
    #[error("{place}: {reason}")]
    Value { place: String, reason: String },
    #[error("device {name} is in {others} too, in a directory of the same rank: nobody can have it")]
    Conflict { name: String, others: String },
}

impl FaultError {
    pub(crate) fn io(error: &io::Error) -> FaultError {
        FaultError::Io(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_one_line_of_bounded_length_whatever_the_file_holds() {
        let fault = |path: &str, text: &str| {
            let error = FaultError::Syntax(text.to_owned());
            Fault { path: PathBuf::from(path), kind: None, error }.to_string()
        };
        assert_eq!(fault("/x.json", "unknown field `é`"), "/x.json: unknown field `é`");
        assert_eq!(fault("/a\nb.json", "c\u{1b}[31md\n"), "/a\\nb.json: c\\u{1b}[31md\\n");
        let long = fault("/x.json", &"é".repeat(5000));
        assert!(long.ends_with("éé…") && long.chars().count() == LETTERS_MAX + 1);
        let exact = fault("/x", &"a".repeat(LETTERS_MAX - "/x: ".len()));
        assert!(exact.ends_with('a') && exact.len() == LETTERS_MAX);
    }
}
