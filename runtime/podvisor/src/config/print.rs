//! Formats of the report of `podvisor config`: JSON, and a valid configuration file with comments.

use std::fmt::Write;

use super::keys::{Section, Takes};
use super::reference::header;
use super::report::{Daemon, KeyReport, Report};
use super::setting::{Origin, find};

/// The report as JSON.
pub(super) fn json(report: &Report) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

/// The report as TOML.
pub(super) fn text(report: &Report) -> String {
    let mut text = head(report);
    let mut table = String::new();
    for key in &report.keys {
        let Some((section, known)) = find(&key.key) else { continue };
        let of_table = key.key.strip_suffix(known.name).unwrap_or_default();
        if table != of_table {
            of_table.clone_into(&mut table);
            let _ = write!(text, "\n{}\n", header(section));
        }
        add(&mut text, section, known.name, known.unset.map(|(_, meaning)| meaning), key);
    }
    if !report.only_in_file.is_empty() {
        text.push_str("\n# Only in the file, and not in force:\n");
    }
    for key in report.only_in_file.iter().filter(|key| key.origin != Origin::Default) {
        let value = key.value.as_ref().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(
            text,
            "# {} = {value}  # {}; counts {}",
            one_line(&key.key),
            key.origin,
            occasion(key.takes)
        );
    }
    text
}

fn head(report: &Report) -> String {
    let file = report.file.display();
    let read = if report.file_is_there { "" } else { ", which is not there" };
    let mut text = match &report.daemon {
        Daemon::Serves { pid, file: of_daemon, .. } => {
            let mut text =
                format!("# In force in the daemon, process {pid}. Its file is {}.\n", of_daemon.display());
            if *of_daemon != report.file {
                let _ = writeln!(text, "# Compared with {file}{read}.");
            }
            text
        }
        Daemon::Down => {
            format!("# No daemon serves. One would start with this, of {file}{read}.\n")
        }
        Daemon::Silent { why } => {
            let why = one_line(why);
            format!("# {why}.\n# A daemon would start with this, of {file}{read}.\n")
        }
    };
    if let Daemon::Serves { last_reload: Some(reload), .. } = &report.daemon
        && let Some(why) = &reload.refused
    {
        let _ = writeln!(
            text,
            "# The last reload was refused, and the values before it are in force: {}",
            one_line(why)
        );
    }
    if let Some(why) = &report.file_is_wrong {
        let _ = writeln!(text, "# The file is wrong: {}", one_line(why));
    }
    match report.differing() {
        0 => {}
        count => {
            let _ = writeln!(text, "# Keys with another value in the file: {count}.");
        }
    }
    text
}

fn add(text: &mut String, section: &Section, name: &str, unset: Option<&str>, key: &KeyReport) {
    let _ = match &key.value {
        Some(value) => writeln!(text, "{name} = {value}  # {}", key.origin),
        None => writeln!(text, "# {name} is unset: {}", unset.unwrap_or_default().replace('`', "")),
    };
    // A default equal to the value would only be a repetition.
    if key.default != key.value
        && let Some(default) = &key.default
    {
        let _ = writeln!(text, "#{name} = {default}  # default");
    }
    let Some(in_file) = &key.in_file else { return };
    let value = match (&in_file.value, &in_file.origin) {
        (Some(value), Some(origin)) => format!("is {value} in the file ({origin})"),
        (_, Some(_)) => "is unset in the file".into(),
        (_, None) => format!("is not in the file, which does not have this {}", section.name),
    };
    let counts = match in_file.counts_after {
        Some(takes) => format!("counts {}", occasion(takes)),
        None => format!("does not count, since the {} is before the file", key.origin),
    };
    let _ = writeln!(text, "# {name} {value}, and {counts}");
}

fn occasion(takes: Takes) -> &'static str {
    match takes {
        Takes::Reload => "after a reload",
        Takes::Restart => "after a restart",
    }
}

/// Text of a file for a one-line comment.
fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Loaded;
    use super::super::file::parse;
    use super::super::setting::settings;
    use super::super::view::{ConfigView, Reload};
    use super::*;

    const TEXT: &str = "[paths]\nrun = \"/r\"\nsocket = \"/s\"\n[upstream]\nsocket = \"/u\"\n\
                        [[handler]]\nname = \"a\"\n[[handler]]\nname = \"b.c\"\ndefault = true\nvcpus_max = 3\n";

    fn loaded(text: &str) -> Loaded {
        parse(Path::new("/c.toml"), text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn what_is_printed_is_a_file_with_the_same_values() {
        for text in ["", TEXT] {
            let before = loaded(text);
            let printed = super::text(&Report::of(Ok(before.clone()), Ok(None)));
            let values = |loaded: &Loaded| settings(&loaded.config, |_| Origin::Default);
            assert_eq!(values(&loaded(&printed)), values(&before), "{printed}");
        }
    }

    #[test]
    fn each_value_has_its_origin_and_its_default_as_a_comment() {
        let printed = text(&Report::of(Ok(loaded(TEXT)), Ok(None)));
        for line in [
            "# No daemon serves. One would start with this, of /c.toml.",
            "run = \"/r\"  # /c.toml:2",
            "#run = \"/run/podvisor\"  # default",
            "state = \"/var/lib/podvisor\"  # default",
            "# vmm is unset: podvisor-vmm in the directory of podvisor",
            "vcpus_max = 3  # /c.toml:11",
        ] {
            assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
        }
        assert_eq!(printed.matches("[[handler]]").count(), 2);
    }

    #[test]
    fn what_differs_and_what_went_wrong_is_said_where_it_is_seen() {
        let reload = Some(Reload { at_s: 1, refused: Some("configuration /c.toml, line 9: x\ny".into()) });
        let settings = loaded("[paths]\nrun = \"/r\"\n").settings;
        let view = ConfigView { pid: 7, file: "/c.toml".into(), settings, reload };
        let file = loaded("[paths]\nrun = \"/q\"\n[cgroup]\nstrict = true\n[[handler]]\nname = \"new\"\n");
        let printed = text(&Report::of(Ok(file), Ok(Some(view))));
        for part in [
            "# In force in the daemon, process 7. Its file is /c.toml.\n",
            "are in force: configuration /c.toml, line 9: x y\n",
            "# run is \"/q\" in the file (/c.toml:2), and counts after a restart\n",
            "# strict is true in the file (/c.toml:4), and counts after a reload\n",
            "# handler.new.name = \"new\"  # /c.toml:6; counts after a reload\n",
            "# name is not in the file, which does not have this handler, and counts after a reload\n",
        ] {
            assert!(printed.contains(part), "{part}: {printed}");
        }
    }

    #[test]
    fn json_has_every_key_with_value_origin_and_default() {
        let text = json(&Report::of(Ok(loaded(TEXT)), Ok(None))).unwrap();
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let keys = report["keys"].as_array().unwrap();
        let run = keys.iter().find(|key| key["key"] == "paths.run").unwrap();
        assert_eq!(run["value"], "/r");
        assert_eq!(run["origin"], serde_json::json!({"from": "file", "file": "/c.toml", "line": 2}));
        assert_eq!((&run["default"], &run["takes"]), (&"/run/podvisor".into(), &"restart".into()));
        assert_eq!(
            (&report["daemon"]["state"], &report["file_is_wrong"]),
            (&"down".into(), &serde_json::Value::Null)
        );
    }
}
