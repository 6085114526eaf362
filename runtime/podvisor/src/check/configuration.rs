//! Examines whether a running daemon has the file's configuration in force. A host without a daemon has no
//! finding: it is checked before its daemon is started.

use super::finding::{Finding, Problem};
use crate::config::Loaded;
use crate::config::ask;
use crate::config::change::{Change, changes};
use crate::config::keys::Takes;
use crate::config::setting::{Origin, Setting};
use crate::config::view::ConfigView;

/// The need, as shown in the line.
const WHAT: &str = "configuration in force";

/// Asks the daemon on the file's socket.
pub(super) fn examine(loaded: &Loaded) -> Option<Finding> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asked = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(ask::in_force(&loaded.config.socket())));
    let outcome = match asked {
        Ok(None) => return None,
        Ok(Some(view)) => compare(&view, loaded),
        Err(error) => Err(Problem::new(format!("{error:#}"), "look at the daemon's log").minor()),
    };
    Some(Finding { what: WHAT, outcome })
}

/// Compares the daemon's configuration with the file. Pods run either way.
fn compare(view: &ConfigView, loaded: &Loaded) -> Result<String, Problem> {
    if let Some(why) = view.refused() {
        let why = format!("the last reload was refused: {why}");
        let remedy = "correct what it names and reload again; until then, what was in force before stays";
        return Err(Problem::new(why, remedy).minor());
    }
    // Each process has its own environment.
    let is_of_both = |change: &Change| {
        let of_environment = |all: &[Setting]| {
            all.iter().any(|setting| {
                setting.key == change.key && matches!(setting.origin, Origin::Environment { .. })
            })
        };
        !of_environment(&view.settings) && !of_environment(&loaded.settings)
    };
    let differing: Vec<Change> =
        changes(&view.settings, &loaded.settings).into_iter().filter(is_of_both).collect();
    if differing.is_empty() {
        return Ok(format!("the daemon has that of {}", loaded.file.display()));
    }
    let keys: Vec<&str> = differing.iter().map(|change| change.key.as_str()).collect();
    let why = format!("{} has other values than the daemon: {}", loaded.file.display(), keys.join(", "));
    let remedy = if differing.iter().any(|change| change.takes == Takes::Restart) {
        "restart the daemon, or put the old values back; `podvisor config` shows both"
    } else {
        "reload the daemon (`systemctl reload podvisor`); `podvisor config` shows both"
    };
    Err(Problem::new(why, remedy).minor())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::load;
    use crate::config::view::Reload;

    fn loaded(text: &str) -> Loaded {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        fs::write(&path, text).unwrap();
        load(Some(&path)).unwrap()
    }

    fn daemon(text: &str, refused: Option<&str>) -> ConfigView {
        let reload = Some(Reload { at_s: 1, refused: refused.map(str::to_owned) });
        ConfigView { pid: 7, file: "/c".into(), settings: loaded(text).settings, reload }
    }

    fn why(outcome: Result<String, Problem>) -> (String, String) {
        let problem = outcome.unwrap_err();
        assert!(problem.minor, "pods run all the same");
        (problem.why, problem.remedy)
    }

    #[test]
    fn a_reload_that_was_refused_is_a_note_with_its_reason() {
        let (why, _) = why(compare(&daemon("", Some("line 3: paths.staet")), &loaded("")));
        assert!(why.contains("the last reload was refused: line 3: paths.staet"), "{why}");
    }

    #[test]
    fn an_edit_that_is_not_in_force_is_a_note_with_its_keys_and_what_it_takes() {
        compare(&daemon("[cgroup]\nstrict = true\n", None), &loaded("[cgroup]\nstrict = true\n")).unwrap();
        let (keys, remedy) = why(compare(&daemon("", None), &loaded("[cgroup]\nstrict = true\n")));
        assert!(
            keys.ends_with("other values than the daemon: cgroup.strict") && remedy.starts_with("reload")
        );
        let (keys, remedy) = why(compare(&daemon("", None), &loaded("[paths]\nvmm = \"/v\"\n")));
        assert!(keys.ends_with("paths.vmm") && remedy.starts_with("restart"));
    }

    #[test]
    fn the_environment_of_the_daemon_is_no_difference() {
        let mut view = daemon("", None);
        let level = view.settings.iter_mut().find(|setting| setting.key == "log.level").unwrap();
        level.value = Some("trace".into());
        level.origin = Origin::Environment { variable: "PODVISOR_LOG".into() };
        compare(&view, &loaded("")).unwrap();
    }

    #[test]
    fn a_host_without_a_daemon_has_no_such_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut loaded = loaded("");
        loaded.config.paths.socket = Some(dir.path().join("absent.sock"));
        assert_eq!(examine(&loaded), None);
    }
}
