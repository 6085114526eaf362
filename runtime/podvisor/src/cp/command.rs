//! Programs of the container, run for a copy. Owns their streams and the reasons of their failures.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use tokio::fs::File;

use crate::client::Client;
use crate::exec;
use crate::session::{self, Ended, Ends, Trust, Wanted};
use crate::show::escape;

/// Most bytes kept of a program's errors.
const ERRORS_BYTES_MAX: usize = 4096;

/// A running container.
pub(super) struct Container<'a> {
    pub(super) client: Client,
    pub(super) id: String,
    pub(super) trust: &'a Trust,
}

/// The end of a program.
struct Outcome {
    ended: Ended,
    /// The beginning of its errors.
    errors: String,
}

impl Container<'_> {
    /// Whether the path in the container passes a test (`-d`, `-e`, `-h`; POSIX `test`).
    ///
    /// # Errors
    /// The container does not run, or has no program `test`.
    pub(super) async fn test(&self, flag: &str, path: &str) -> anyhow::Result<bool> {
        let outcome = self.run(&["test", flag, path], None, Box::new(io::sink())).await?;
        match outcome.ended {
            Ended::Exited(0) => Ok(true),
            Ended::Exited(1) => Ok(false),
            ended => bail!(outcome.failure("test", ended)),
        }
    }

    /// Writes an archive of `name` in `directory`.
    ///
    /// # Errors
    /// `tar` in the container fails, or is missing.
    pub(super) async fn archive(
        &self,
        directory: &str,
        name: &str,
        to: Box<dyn Write>,
    ) -> anyhow::Result<()> {
        // A name alone may look like an option.
        let name = format!("./{name}");
        self.tar(&["tar", "-cf", "-", "-C", directory, &name], None, to).await
    }

    /// Unpacks an archive in `directory`.
    ///
    /// # Errors
    /// `tar` in the container fails, or is missing.
    pub(super) async fn unpack(&self, directory: &str, archive: OwnedFd) -> anyhow::Result<()> {
        self.tar(&["tar", "-xf", "-", "-C", directory], Some(archive), Box::new(io::sink())).await
    }

    async fn tar(&self, command: &[&str], from: Option<OwnedFd>, to: Box<dyn Write>) -> anyhow::Result<()> {
        let outcome = self.run(command, from, to).await?;
        match outcome.ended {
            Ended::Exited(0) => Ok(()),
            ended => bail!(outcome.failure("tar", ended)),
        }
    }

    async fn run(
        &self,
        command: &[&str],
        from: Option<OwnedFd>,
        to: Box<dyn Write>,
    ) -> anyhow::Result<Outcome> {
        let wanted = Wanted {
            stdin: from.is_some(),
            stdout: true,
            stderr: true,
            tty: false,
            detachable: false,
            ends_input: true,
        };
        let command = command.iter().map(|&part| part.to_owned()).collect();
        let url = exec::url(&self.client, &self.id, command, wanted).await?;
        let errors = Errors::default();
        let stdin = from.map(|from| File::from_std(from.into()));
        let mut ends = Ends { stdin, stdout: to, stderr: Box::new(errors.clone()) };
        let ended = session::carry_between(&url, wanted, self.trust, &mut ends).await?;
        Ok(Outcome { ended, errors: errors.text() })
    }
}

impl Outcome {
    fn failure(&self, program: &str, ended: Ended) -> String {
        match ended.code() {
            126 | 127 => format!("the container has no program {program}, and cp needs test and tar there"),
            code if self.errors.is_empty() => format!("{program} in the container ended with code {code}"),
            code => format!("{program} in the container ended with code {code}: {}", self.errors),
        }
    }
}

/// The beginning of a program's errors.
#[derive(Clone, Default)]
struct Errors(Arc<Mutex<Vec<u8>>>);

impl Errors {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        escape::line(String::from_utf8_lossy(&bytes).trim_end()).into_owned()
    }
}

impl Write for Errors {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = ERRORS_BYTES_MAX.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_programs_errors_is_kept() {
        let mut errors = Errors::default();
        errors.write_all(b"tar: x: no room\n").unwrap();
        assert_eq!(errors.text(), "tar: x: no room");
        errors.write_all(&[b'!'; 2 * ERRORS_BYTES_MAX]).unwrap();
        assert_eq!(errors.text().len(), ERRORS_BYTES_MAX + "\\n".len() - 1);
        let outcome = Outcome { ended: Ended::Exited(2), errors: "no room".into() };
        assert_eq!(
            outcome.failure("tar", Ended::Exited(2)),
            "tar in the container ended with code 2: no room"
        );
        assert!(outcome.failure("tar", Ended::Exited(127)).contains("no program tar"));
    }
}
