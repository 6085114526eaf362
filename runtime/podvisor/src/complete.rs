//! Completion of names of pods, containers and images in a shell: the shell's script calls this program at
//! each TAB. Owns the choice of candidates, and the wait for the daemon. Never prints an error: without a
//! daemon there are no candidates.

mod names;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap_complete::{ArgValueCandidates, CompleteEnv, CompletionCandidate};

use crate::config::{self, Config};
use crate::daemon::Daemon;
use crate::{client, listing};
use names::Named;

/// The variable by which a shell's script asks for candidates.
pub(crate) const VARIABLE: &str = "PODVISOR_COMPLETE";

/// Longest wait for the daemon. A person waits for each TAB.
const WITHIN: Duration = Duration::from_secs(1);

/// Answers a shell's script and ends the process, if one asks.
pub(crate) fn answer_a_shell(program: fn() -> clap::Command) {
    CompleteEnv::with_factory(program).var(VARIABLE).bin("podvisor").completer("podvisor").complete();
}

/// Names of pods.
pub(crate) fn pods() -> ArgValueCandidates {
    ArgValueCandidates::new(|| asked(async |daemon| Ok(names::pods(&listing::ask(daemon).await?.0))))
}

/// Names of containers.
pub(crate) fn containers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| asked(async |daemon| Ok(names::containers(&listing::ask(daemon).await?.0))))
}

/// Names of pods and containers.
pub(crate) fn pods_and_containers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        asked(async |daemon| {
            let (pods, _) = listing::ask(daemon).await?;
            Ok([names::pods(&pods), names::paths(&pods)].concat())
        })
    })
}

/// Names of images.
pub(crate) fn images() -> ArgValueCandidates {
    ArgValueCandidates::new(|| asked(async |daemon| Ok(names::images(&daemon.images().await?))))
}

fn asked(question: impl AsyncFnOnce(&Daemon) -> anyhow::Result<Vec<Named>>) -> Vec<CompletionCandidate> {
    let config = config_file(std::env::args_os());
    let answer = || -> anyhow::Result<Vec<Named>> {
        let config: Config = config::load(config.as_deref())?.config;
        client::block_on(async {
            let asking = async { question(&Daemon::dial(&config).await?).await };
            tokio::time::timeout(WITHIN, asking).await?
        })
    };
    let named = answer().unwrap_or_default();
    named.into_iter().map(|one| CompletionCandidate::new(one.name).help(Some(one.about.into()))).collect()
}

/// The configuration file named in the line that a shell completes.
fn config_file(line: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let words: Vec<String> = line.filter_map(|word| word.into_string().ok()).collect();
    let at = words.iter().position(|word| word == "--config" || word.starts_with("--config="))?;
    let file = words[at].strip_prefix("--config=").or(words.get(at + 1).map(String::as_str))?;
    (!file.is_empty()).then(|| PathBuf::from(file))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn completed(line: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = line.iter().map(OsString::from).collect();
        let last = words.len() - 1;
        let found = clap_complete::engine::complete(&mut Cli::command(), words, last, None).unwrap();
        found.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn commands_and_flags_are_completed() {
        let all = completed(&["podvisor", ""]);
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(all.iter().any(|found| found == command.get_name()), "{}", command.get_name());
        }
        assert!(
            !completed(&["podvisor", "s"]).contains(&"schema".to_owned()),
            "hidden commands are not for people"
        );
        assert_eq!(completed(&["podvisor", "exec", "--streaming-c"]), ["--streaming-ca"]);
    }

    #[test]
    fn the_configuration_is_the_one_of_the_completed_line() {
        let of = |line: &[&str]| config_file(line.iter().map(OsString::from));
        let file = Some(PathBuf::from("/etc/x"));
        assert_eq!(of(&["podvisor", "--", "podvisor", "--config", "/etc/x", "exec", ""]), file);
        assert_eq!(of(&["podvisor", "--", "podvisor", "exec", "--config=/etc/x", ""]), file);
        assert_eq!(
            (of(&["podvisor", "exec"]), of(&["podvisor", "--config"]), of(&["--config="])),
            (None, None, None)
        );
    }

    #[test]
    fn without_a_daemon_there_are_no_names() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.toml");
        std::fs::write(&config, "[paths]\nsocket = \"/none/x.sock\"\n").unwrap();
        let mut loaded = config::load(Some(&config)).unwrap().config;
        loaded.paths.socket = Some("/none/x.sock".into());
        let dialled = client::block_on(async { Ok(Daemon::dial(&loaded).await?) });
        assert!(dialled.is_err());
        assert!(completed(&["podvisor", "exec", "w"]).is_empty());
    }
}
