//! The report on the host of a failed test: the last lines of the daemon's log and of its guests' consoles.
//! The report only reads files and never fails: the test's own failure counts.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Last lines printed of the daemon's log, and of each console.
const LOG_LINES: usize = 60;
const CONSOLE_LINES: usize = 20;
/// Most consoles printed, the latest first.
const CONSOLES_MAX: usize = 3;

/// The report on the host in this directory. Its daemon writes to `log`.
pub(crate) fn report(dir: &Path, log: &Path) -> String {
    let mut report = String::new();
    add(&mut report, "the daemon's log", log, LOG_LINES);
    for console in consoles(dir).into_iter().take(CONSOLES_MAX) {
        add(&mut report, &format!("the guest's console {}", console.display()), &console, CONSOLE_LINES);
    }
    report
}

fn add(report: &mut String, what: &str, file: &Path, lines: usize) {
    let text = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<_> = text.lines().collect();
    let last = &all[all.len().saturating_sub(lines)..];
    let _ = writeln!(report, "== {what}, its last {} lines:", last.len());
    for line in last {
        let _ = writeln!(report, "{line}");
    }
}

/// Consoles of running guests, and of ended ones (`runtime/pod/src/host/logs.rs`); the latest first.
fn consoles(dir: &Path) -> Vec<PathBuf> {
    let of_pods = [
        ("run/pods", "shared/logs/console.log"),
        ("state/pods", "console.log"),
        ("state/ended", "console.log"),
    ];
    let consoles = of_pods.into_iter().flat_map(|(parent, console)| {
        let pods = std::fs::read_dir(dir.join(parent)).into_iter().flatten().flatten();
        pods.map(move |pod| pod.path().join(console))
    });
    let mut found: Vec<_> = consoles
        .filter_map(|console| {
            Some((console.metadata().ok()?.modified().unwrap_or(SystemTime::UNIX_EPOCH), console))
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, console)| console).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_the_log_and_of_each_console_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let lines: String = (0..LOG_LINES + 1).map(|n| format!("line {n}\n")).collect();
        std::fs::write(at("daemon.log"), lines).unwrap();
        for (pod, logs) in [("run/pods/a", "shared/logs"), ("state/ended/b", "")] {
            std::fs::create_dir_all(at(pod).join(logs)).unwrap();
            std::fs::write(at(pod).join(logs).join("console.log"), format!("Linux of {pod}\n")).unwrap();
        }
        let report = report(dir.path(), &at("daemon.log"));
        assert!(!report.contains("line 0\n") && report.contains("line 1\n"), "{report}");
        assert!(
            report.contains("Linux of run/pods/a") && report.contains("Linux of state/ended/b"),
            "{report}"
        );
    }

    #[test]
    fn a_host_without_files_has_an_empty_report() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(report(dir.path(), &dir.path().join("none")), "== the daemon's log, its last 0 lines:\n");
    }
}
