//! The content of `podvisor config`, without a format: each key in force, with the file's value if it
//! differs. Pure.

use std::path::PathBuf;

use serde::Serialize;

use super::Loaded;
use super::change::{changes, takes};
use super::keys::Takes;
use super::setting::{Origin, Setting, default_of};
use super::view::{ConfigView, Reload};

/// The configuration in force, and the current file.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The file, and whether it exists.
    pub(super) file: PathBuf,
    pub(super) file_is_there: bool,
    /// The mistake in the file, if there is one.
    pub(super) file_is_wrong: Option<String>,
    pub(super) daemon: Daemon,
    /// All keys in force.
    pub(super) keys: Vec<KeyReport>,
    /// Keys only in the file: those of handlers not in force yet.
    pub(super) only_in_file: Vec<KeyReport>,
}

/// The daemon with the values in force.
#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum Daemon {
    /// The values are the daemon's.
    Serves { pid: u32, file: PathBuf, last_reload: Option<Reload> },
    /// No daemon serves. The values are those of a new one.
    Down,
    /// A daemon serves, but does not report its values. The values are those of a new one.
    Silent { why: String },
}

/// A key.
#[derive(Debug, Serialize)]
pub(super) struct KeyReport {
    pub(super) key: String,
    /// The value; `None` for a key that is unset.
    pub(super) value: Option<toml::Value>,
    pub(super) origin: Origin,
    /// The value by default; `None` for a key that is unset by default.
    pub(super) default: Option<toml::Value>,
    /// When a new value takes effect.
    pub(super) takes: Takes,
    /// The value in the file, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) in_file: Option<InFile>,
}

/// A key's value in the file, different from the one in force.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct InFile {
    /// The value; `None` if the key is unset, or not in the file.
    pub(super) value: Option<toml::Value>,
    /// The origin of the file's value; `None` if the key is not in the file.
    pub(super) origin: Option<Origin>,
    /// When it takes effect; `None` if the environment overrides the file.
    pub(super) counts_after: Option<Takes>,
}

impl Report {
    /// The report of a file and the daemon's answer. `file` must not include the environment if the daemon
    /// serves.
    pub(super) fn of(
        file: Result<Loaded, (PathBuf, String)>,
        asked: Result<Option<ConfigView>, String>,
    ) -> Report {
        let (daemon, in_force) = match asked {
            Ok(Some(ConfigView { pid, file, settings, reload })) => {
                (Daemon::Serves { pid, file, last_reload: reload }, Some(settings))
            }
            Ok(None) => (Daemon::Down, None),
            Err(why) => (Daemon::Silent { why }, None),
        };
        let (path, is_there, wrong, of_file) = match file {
            Ok(Loaded { file, is_there, settings, .. }) => (file, is_there, None, Some(settings)),
            Err((file, why)) => (file, true, Some(why), None),
        };
        let in_force = in_force.or_else(|| of_file.clone()).unwrap_or_default();
        let of_file = of_file.unwrap_or_else(|| in_force.clone());
        let differing = changes(&in_force, &of_file);
        let find = |key: &str| of_file.iter().find(|setting| setting.key == key);
        let keys = in_force.iter().map(|setting| {
            let change = differing.iter().find(|change| change.key == setting.key);
            let in_file = change.map(|change| InFile {
                value: change.to.clone(),
                origin: find(&change.key).map(|setting| setting.origin.clone()),
                counts_after: (!matches!(setting.origin, Origin::Environment { .. })).then_some(change.takes),
            });
            key_report(as_in_file(setting, find(&setting.key)), in_file)
        });
        let keys = keys.collect();
        let is_new = |setting: &&Setting| in_force.iter().all(|known| known.key != setting.key);
        let only_in_file = of_file.iter().filter(is_new).map(|setting| key_report(setting, None)).collect();
        Report { file: path, file_is_there: is_there, file_is_wrong: wrong, daemon, keys, only_in_file }
    }

    /// Number of keys with another value in the file.
    pub(super) fn differing(&self) -> usize {
        self.keys.iter().filter(|key| key.in_file.is_some()).count() + self.only_in_file.len()
    }
}

/// A value in force from a file is shown with its current line.
fn as_in_file<'a>(in_force: &'a Setting, of_file: Option<&'a Setting>) -> &'a Setting {
    let both = of_file.filter(|now| {
        let from_files = |one, other| matches!((one, other), (&Origin::File { .. }, &Origin::File { .. }));
        now.value == in_force.value && from_files(&now.origin, &in_force.origin)
    });
    both.unwrap_or(in_force)
}

fn key_report(setting: &Setting, in_file: Option<InFile>) -> KeyReport {
    let Setting { key, value, origin } = setting.clone();
    KeyReport { default: default_of(&key), takes: takes(&key), key, value, origin, in_file }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::file::parse;
    use super::*;

    fn loaded(text: &str) -> Loaded {
        parse(Path::new("/c.toml"), text).unwrap()
    }

    fn daemon(text: &str) -> Result<Option<ConfigView>, String> {
        let settings = loaded(text).settings;
        Ok(Some(ConfigView { pid: 7, file: "/c.toml".into(), settings, reload: None }))
    }

    fn key<'a>(report: &'a Report, key: &str) -> &'a KeyReport {
        report.keys.iter().find(|report| report.key == key).unwrap()
    }

    #[test]
    fn without_a_daemon_the_file_is_what_one_would_start_with() {
        let report = Report::of(Ok(loaded("[paths]\nrun = \"/r\"\n")), Ok(None));
        assert!(matches!(report.daemon, Daemon::Down));
        assert_eq!((&key(&report, "paths.run").value, report.differing()), (&Some("/r".into()), 0));
        let silent = Report::of(Ok(loaded("")), Err("it hangs".into()));
        assert!(matches!(&silent.daemon, Daemon::Silent { why } if why == "it hangs"));
    }

    #[test]
    fn an_edit_without_a_reload_is_shown_beside_what_is_in_force() {
        let file = loaded("\n[paths]\nrun = \"/r\"\nstate = \"/new\"\n[cgroup]\nstrict = true\n");
        let report = Report::of(Ok(file), daemon("[paths]\nrun = \"/r\"\nstate = \"/old\"\n"));
        let state = key(&report, "paths.state");
        assert_eq!(state.value, Some("/old".into()));
        let in_file = state.in_file.as_ref().unwrap();
        assert_eq!((&in_file.value, in_file.counts_after), (&Some("/new".into()), Some(Takes::Restart)));
        assert_eq!(key(&report, "cgroup.strict").in_file.as_ref().unwrap().counts_after, Some(Takes::Reload));
        let run = key(&report, "paths.run");
        assert_eq!((&run.in_file, &run.origin), (&None, &Origin::File { file: "/c.toml".into(), line: 3 }));
        assert_eq!(report.differing(), 2);
    }

    #[test]
    fn a_wrong_file_leaves_what_the_daemon_has() {
        let wrong = Err(("/c.toml".into(), "line 3".into()));
        let report = Report::of(wrong, daemon("[log]\nlevel = \"warn\"\n"));
        assert_eq!(key(&report, "log.level").value, Some("warn".into()));
        assert_eq!((report.file_is_wrong.as_deref(), report.differing()), (Some("line 3"), 0));
        let nothing = Report::of(Err(("/c.toml".into(), "line 3".into())), Ok(None));
        assert!(nothing.keys.is_empty());
    }

    #[test]
    fn what_the_environment_overrides_counts_at_no_occasion() {
        let Ok(Some(mut view)) = daemon("") else { panic!() };
        let level = view.settings.iter_mut().find(|setting| setting.key == "log.level").unwrap();
        level.origin = Origin::Environment { variable: "PODVISOR_LOG".into() };
        level.value = Some("debug".into());
        let report = Report::of(Ok(loaded("[log]\nlevel = \"warn\"\n")), Ok(Some(view)));
        let level = key(&report, "log.level");
        assert_eq!(level.value, Some("debug".into()));
        assert_eq!(level.in_file.as_ref().unwrap().counts_after, None);
    }

    #[test]
    fn handlers_that_only_one_side_has_are_shown() {
        let report =
            Report::of(Ok(loaded("[[handler]]\nname = \"new\"\n")), daemon("[[handler]]\nname = \"old\"\n"));
        let gone = key(&report, "handler.old.name").in_file.as_ref().unwrap();
        assert_eq!((&gone.value, &gone.origin), (&None, &None));
        assert!(report.only_in_file.iter().any(|key| key.key == "handler.new.name"));
    }
}
