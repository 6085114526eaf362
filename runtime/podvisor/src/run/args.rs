//! The arguments of `podvisor run`: names and values of `docker run`, where CRI has a field for them.
//! `docker.rs` has the reasons for the others.

use std::collections::BTreeMap;

use super::limits::LimitArgs;
use super::pod_network::NetworkArgs;
use super::process::ProcessArgs;
use super::rights::RightsArgs;
use super::storage::StorageArgs;
use crate::complete;
use crate::image::CredentialArgs;
use crate::session::Trust;

/// Arguments of `podvisor run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pass standard input to the container.
    #[arg(short, long, conflicts_with = "creds_stdin")]
    pub(super) interactive: bool,
    /// Give the container a terminal. With -i, ctrl-p ctrl-q leaves it, if the daemon is not private.
    #[arg(short, long)]
    pub(super) tty: bool,
    /// Print the pod's id, and leave the container running. Needs the node's daemon.
    #[arg(short, long, conflicts_with_all = ["interactive", "tty", "rm"])]
    pub(super) detach: bool,
    /// Remove pod and container when the container has ended. With a private daemon this always happens.
    #[arg(long)]
    pub(super) rm: bool,
    /// Name of the pod, for other commands. By default it is run- with the process id.
    #[arg(long, value_parser = parse_name)]
    pub(super) name: Option<String>,
    /// Label of the pod and the container. May be repeated.
    #[arg(short, long, value_name = "KEY[=VALUE]", value_parser = parse_label)]
    label: Vec<(String, String)>,
    /// When to pull the image.
    #[arg(long, value_enum, default_value_t = Pull::Missing)]
    pub(super) pull: Pull,
    /// Platform of the image. Only the node's own platform is possible.
    #[arg(long = "platform", value_name = "OS/ARCH", value_parser = parse_platform)]
    _platform: Option<String>,
    /// Runtime handler. By default the daemon's default handler.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(super) handler: String,
    #[command(flatten)]
    pub(super) process: ProcessArgs,
    #[command(flatten)]
    pub(super) limits: LimitArgs,
    #[command(flatten)]
    pub(super) storage: StorageArgs,
    #[command(flatten)]
    pub(super) network: NetworkArgs,
    #[command(flatten)]
    pub(super) rights: RightsArgs,
    #[command(flatten)]
    pub(super) credentials: CredentialArgs,
    #[command(flatten)]
    pub(super) trust: Trust,
    /// Image to run.
    #[arg(add = complete::images())]
    pub(super) image: String,
    /// Command and arguments in place of the image's.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) command: Vec<String>,
}

/// When the image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Pull {
    /// Always.
    Always,
    /// If the node does not have it.
    Missing,
    /// Never.
    Never,
}

impl Args {
    /// The labels. The last one of a key counts.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        self.label.iter().cloned().collect()
    }
}

fn parse_name(text: &str) -> Result<String, String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric();
    let mut bytes = text.bytes();
    let starts = bytes.next().is_some_and(is_letter);
    if starts && text.len() <= 253 && bytes.all(|byte| is_letter(byte) || b"_.-".contains(&byte)) {
        return Ok(text.to_owned());
    }
    Err("a name begins with a letter or digit and goes on with those, _, . or -".into())
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if key.is_empty() { Err("a label is KEY or KEY=VALUE".into()) } else { Ok((key.into(), value.into())) }
}

/// The node's platform has no other name, since a guest runs on the node's processor.
fn parse_platform(text: &str) -> Result<String, String> {
    let mut parts = text.split('/');
    let own = ["linux", "amd64"];
    let names = [parts.next().unwrap_or_default(), parts.next().unwrap_or_default()];
    match (own == names || names == ["linux", "x86_64"], parts.next()) {
        (true, None) => Ok(text.to_owned()),
        _ => Err(format!("VMs here run {} only", own.join("/"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::parsed;

    #[test]
    fn a_name_is_as_docker_wants_it() {
        assert_eq!(parsed(&["--name", "web-1.a_B", "image"]).unwrap().name.unwrap(), "web-1.a_B");
        for wrong in ["", "-web", "a/b", "a b"] {
            let said = parsed(&[&format!("--name={wrong}"), "image"]).unwrap_err();
            assert!(said.contains("name"), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_label_may_have_no_value_and_its_last_value_counts() {
        let labels = parsed(&["-l", "a=1", "-l", "b", "--label", "a=2=3", "image"]).unwrap().labels();
        assert_eq!(labels, [("a".into(), "2=3".into()), ("b".into(), String::new())].into());
        assert!(parsed(&["-l", "=1", "image"]).unwrap_err().contains("KEY=VALUE"));
    }

    #[test]
    fn only_the_nodes_platform_runs_here() {
        for own in ["linux/amd64", "linux/x86_64"] {
            parsed(&["--platform", own, "image"]).unwrap();
        }
        for other in ["linux/arm64", "windows/amd64", "linux", "linux/amd64/v3", ""] {
            let said = parsed(&["--platform", other, "image"]).unwrap_err();
            assert!(said.contains("VMs here run linux/amd64 only") || other.is_empty(), "{said}");
        }
    }

    #[test]
    fn a_containers_input_has_no_credentials_in_it() {
        let said = parsed(&["-i", "--creds-stdin", "image"]).unwrap_err();
        assert!(said.contains("cannot be used with"), "{said}");
        parsed(&["-t", "--creds-stdin", "image"]).unwrap();
    }

    #[test]
    fn a_container_in_the_background_has_no_streams() {
        for with in ["-i", "-t", "--rm"] {
            assert!(parsed(&["-d", with, "image"]).unwrap_err().contains("cannot be used with"));
        }
        assert!(parsed(&["-d", "image", "sh", "-c", "--rm"]).unwrap().detach);
    }
}
