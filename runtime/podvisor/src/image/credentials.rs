//! Credentials for registries, given as for podman, docker and crictl: in an argument, on standard input, or
//! in the files of an earlier login. No secret is shown, and none is written anywhere.
//!
//! ```text
//!   --creds, --creds-stdin ──► for all names, all of one registry
//!   --authfile, $REGISTRY_AUTH_FILE ──► that file alone
//!   none of them ──► $XDG_RUNTIME_DIR/containers/auth.json ► ~/.config/containers/auth.json
//!                    ► ~/.docker/config.json
//! ```
//! Of a file's entries, the one with the longest match of the image's name is used (containers-auth.json(5)).

mod auth_file;

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

use anyhow::{Context, bail};
use proto_images::v1::Credentials;

use self::auth_file::AuthFile;
use crate::show::out;

/// Longest line of credentials on standard input, in bytes. Tokens have some KiB.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Arguments for credentials.
#[derive(Debug, clap::Args)]
pub(crate) struct CredentialArgs {
    /// User and password for the registry. Other users of the node see a password in the list of processes.
    /// Without one, podvisor asks on the terminal.
    #[arg(long, value_name = "USER[:PASSWORD]", conflicts_with = "creds_stdin")]
    creds: Option<String>,
    /// Read USER:PASSWORD from a line of standard input.
    #[arg(long)]
    creds_stdin: bool,
    /// File of credentials, as podman login and docker login write it. By default their own files are used.
    #[arg(long, value_name = "FILE", env = "REGISTRY_AUTH_FILE")]
    authfile: Option<PathBuf>,
}

/// The given credentials.
pub(super) enum Given {
    /// For all names.
    Password(Credentials),
    /// In files. The first file with an entry for a name is used.
    Files(Vec<AuthFile>),
}

impl CredentialArgs {
    /// Reads the credentials for these names.
    ///
    /// # Errors
    /// The arguments, a file or standard input cannot be used, or a password would go to several registries.
    pub(super) fn read(&self, names: &[String]) -> anyhow::Result<Given> {
        if self.creds.is_some() || self.creds_stdin {
            one_registry(names)?;
        }
        match &self.creds {
            Some(creds) => match creds.split_once(':') {
                Some(_) => Ok(Given::Password(password(creds)?)),
                None => Ok(Given::Password(password(&format!("{creds}:{}", ask(creds)?))?)),
            },
            None if self.creds_stdin => Ok(Given::Password(password(&line(std::io::stdin().lock())?)?)),
            None => Ok(Given::Files(auth_file::read(self.authfile.as_deref())?)),
        }
    }
}

impl Given {
    /// The credentials for an image. `None` if no file has any.
    ///
    /// # Errors
    /// The name is invalid, or a file's entry cannot be read.
    pub(super) fn credentials_for(&self, name: &str) -> anyhow::Result<Option<Credentials>> {
        let files = match self {
            Given::Password(credentials) => return Ok(Some(credentials.clone())),
            Given::Files(files) => files,
        };
        let repository = runtime_image::repository(name)?;
        for file in files {
            if let Some(credentials) = file.credentials_for(&repository)? {
                return Ok(Some(credentials));
            }
        }
        for helper in files.iter().filter_map(|file| file.helper_for(&repository)) {
            let helper = crate::show::escape::line(&helper).into_owned();
            out::complain(format_args!(
                "{helper}, but helpers are not run: pulling {name} without credentials"
            ));
        }
        Ok(None)
    }
}

/// Fails if the names are of several registries: a password is for one.
fn one_registry(names: &[String]) -> anyhow::Result<()> {
    let mut first: Option<String> = None;
    for name in names {
        let repository = runtime_image::repository(name)?;
        let registry = repository.split('/').next().unwrap_or_default().to_owned();
        match &first {
            Some(known) if *known != registry => {
                bail!("the credentials are for one registry, and the names are of {known} and {registry}");
            }
            _ => first = Some(registry),
        }
    }
    Ok(())
}

fn password(text: &str) -> anyhow::Result<Credentials> {
    // The message never repeats the input: it is a secret.
    match text.split_once(':') {
        Some((username, password)) if !username.is_empty() => Ok(Credentials {
            username: username.to_owned(),
            password: password.to_owned(),
            ..Default::default()
        }),
        _ => bail!("the credentials are not USER:PASSWORD"),
    }
}

/// Asks on the terminal, without an echo.
fn ask(user: &str) -> anyhow::Result<String> {
    if !std::io::stdin().is_terminal() {
        bail!("--creds has no password, and there is no terminal to ask for it on: --creds-stdin reads it");
    }
    let terminal = console::Term::stderr();
    terminal.write_str(&format!("password of {}: ", crate::show::escape::line(user)))?;
    terminal.read_secure_line().context("reading the password")
}

/// The first line.
fn line(input: impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    input.take(LINE_BYTES_MAX).read_line(&mut line).context("reading the credentials from standard input")?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_are_split_at_the_first_colon() {
        let found = password("me:pass:word").unwrap();
        assert_eq!((found.username.as_str(), found.password.as_str()), ("me", "pass:word"));
        for wrong in ["secret", ":secret", ""] {
            let error = password(wrong).unwrap_err().to_string();
            assert_eq!(error, "the credentials are not USER:PASSWORD");
        }
    }

    #[test]
    fn a_line_ends_with_its_line_feed_and_has_a_bound() {
        assert_eq!(line(&b"me:secret\r\nnext\n"[..]).unwrap(), "me:secret");
        assert_eq!(line(&b"me:secret"[..]).unwrap(), "me:secret");
        let endless = std::io::BufReader::new(std::io::repeat(b'x'));
        assert_eq!(line(endless).unwrap().len() as u64, LINE_BYTES_MAX);
    }

    #[test]
    fn a_password_goes_to_one_registry_alone() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        one_registry(&names(&["r.example/a", "r.example/b:2"])).unwrap();
        let error = one_registry(&names(&["r.example/a", "busybox"])).unwrap_err().to_string();
        assert!(error.contains("r.example and docker.io"), "{error}");
    }
}
