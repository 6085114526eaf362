//! How a unit starts its program: the words of its command, and its environment. A distribution's options
//! may be in either.

use std::path::Path;

use crate::host::{CallError, Host};
use crate::kubelet_command::{command, flag, flags};
use crate::root::{HostRoot, RootError};

/// An environment file has a few lines.
const BYTES_MAX: u64 = 1 << 20;

/// The command and the environment of a unit. Empty if they are not known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Started {
    words: Vec<String>,
    /// In the order in which they are set.
    variables: Vec<(String, String)>,
}

/// A unit whose start cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StartedError {
    /// systemd refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The node's disk failed.
    #[error(transparent)]
    Root(#[from] RootError),
}

impl Started {
    /// Reads how a unit is started. The file `without` is skipped.
    pub(crate) fn read(
        root: &HostRoot,
        host: &dyn Host,
        unit: &str,
        without: &Path,
    ) -> Result<Started, StartedError> {
        let text = host.run("systemctl", &["cat", unit])?;
        let words = command(&text, without).as_deref().map(words).unwrap_or_default();
        let shown = host.run("systemctl", &["show", "--property=Environment,EnvironmentFiles", unit])?;
        let mut variables = Vec::new();
        let own = shown.lines().filter_map(|line| line.strip_prefix("Environment="));
        variables.extend(own.flat_map(self::words).filter_map(|word| variable(&word)));
        // Variables of files win over the unit's own, and those of a later file over an earlier one's.
        for line in shown.lines().filter_map(|line| line.strip_prefix("EnvironmentFiles=")) {
            let file = line.rsplit_once(" (").map_or(line, |(file, _)| file);
            if !Path::new(file).is_absolute() {
                continue;
            }
            let text = root.read(Path::new(file), BYTES_MAX)?.unwrap_or_default();
            variables.extend(text.lines().map(str::trim).filter_map(variable));
        }
        Ok(Started { words, variables })
    }

    /// The last value of an argument.
    pub(crate) fn argument(&self, name: &str) -> Option<String> {
        flag(&self.words, name)
    }

    /// All values of an argument, in their order.
    pub(crate) fn arguments(&self, name: &str) -> Vec<String> {
        flags(&self.words, name)
    }

    /// The value of a variable; `None` also if it is empty.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let (_, value) = self.variables.iter().rev().find(|(found, _)| found == name)?;
        Some(value.clone()).filter(|value| !value.is_empty())
    }
}

/// The words of a line. Installers quote whole words (k3s, `install.sh`).
fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(|word| word.trim_matches(['\'', '"']).to_owned()).collect()
}

/// The variable set by a line, with its value; `None` for a comment.
fn variable(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let is_name = !name.starts_with(['#', ';']);
    is_name.then(|| (name.to_owned(), value.trim_matches(['\'', '"']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_are_read_without_their_quotes() {
        let started = Started { words: words("k3s server '--data-dir' '/a' \"-c=/b\""), variables: vec![] };
        assert_eq!(started.argument("--data-dir").as_deref(), Some("/a"));
        assert_eq!(started.argument("-c").as_deref(), Some("/b"));
        assert_eq!(started.argument("--config"), None);
    }

    #[test]
    fn the_last_variable_counts_and_an_empty_one_is_none() {
        let lines = ["# A=0", "A=1", "A='2'", "B=", "no variable"];
        let started = Started { words: vec![], variables: lines.into_iter().filter_map(variable).collect() };
        assert_eq!(started.variable("A").as_deref(), Some("2"));
        assert_eq!((started.variable("B"), started.variable("# A")), (None, None));
    }
}
