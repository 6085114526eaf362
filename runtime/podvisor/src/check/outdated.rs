//! Finds pods with an older VMM, kernel or agent than the installed ones, from a running daemon's Status. An
//! upgrade does not touch running VMs, so its fixes reach only new VMs. Such pods are no failure. Without a
//! daemon there is nothing to report.

use std::time::Duration;

use anyhow::Context;
use proto_cri::v1;
use serde::Deserialize;

use super::finding::{Finding, Problem};
use crate::client::{self, refused};
use crate::config::Config;

/// The need, as shown in the lines.
const WHAT: &str = "VMs of this installation";

/// The remedy for a pod with an older part.
const REMEDY: &str = "delete the pod for its controller to make it anew, or drain the node";

/// The remedy for a daemon with older files.
const RESTART: &str = "run `systemctl restart podvisor`; pods go on";

/// Most pods with their own line: a page of a terminal. The last line counts the others.
const LINES_MAX: usize = 40;

/// Timeout for the daemon: a hanging one must not hang this command.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The part of Status' information used here.
#[derive(Debug, Deserialize)]
struct StatusInfo {
    versions: Option<Versions>,
}

/// A comparison of the pods' VMs with the installed files.
#[derive(Debug, Deserialize)]
struct Versions {
    restart_needed: bool,
    vms: usize,
    outdated: Vec<Outdated>,
}

/// A pod with older parts.
#[derive(Debug, Deserialize)]
struct Outdated {
    id: String,
    namespace: String,
    name: String,
    parts: Vec<String>,
}

/// One line for each pod with an older part, and one for a daemon to restart. Otherwise one line for all.
pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asked = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let asking = async { tokio::time::timeout(ANSWERS_WITHIN, ask(config)).await };
        runtime
            .block_on(asking)
            .with_context(|| format!("no answer within {} s", ANSWERS_WITHIN.as_secs()))?
    });
    match asked {
        Ok(Some(versions)) => findings(versions),
        Ok(None) => {
            vec![Finding { what: WHAT, outcome: Ok("no daemon serves, so nobody knows of any".into()) }]
        }
        Err(error) => {
            let why = format!("{}: {error:#}", config.socket().display());
            vec![note(why, RESTART)]
        }
    }
}

/// Asks the daemon; `None` if none serves.
async fn ask(config: &Config) -> anyhow::Result<Option<Versions>> {
    let Ok(mut client) = client::connect(&config.socket()).await else { return Ok(None) };
    let status = client.runtime.status(v1::StatusRequest { verbose: true }).await.map_err(refused)?;
    let status = status.into_inner();
    let info = status.info.get("config").map(String::as_str).unwrap_or_default();
    let info: StatusInfo = serde_json::from_str(info).context("the daemon says nothing of its pods")?;
    info.versions.context("the daemon does not say what its pods run on: it is of an older release").map(Some)
}

fn findings(versions: Versions) -> Vec<Finding> {
    let Versions { restart_needed, vms, outdated } = versions;
    let restart = restart_needed
        .then(|| note("the daemon starts pods from files that have been replaced since".into(), RESTART));
    let others = outdated.len().saturating_sub(LINES_MAX);
    let pods = outdated.into_iter().take(LINES_MAX).map(|pod| note(describe(&pod), REMEDY));
    let rest = (others > 0).then(|| note(format!("{others} more pods run on older parts"), REMEDY));
    let mut findings: Vec<Finding> = restart.into_iter().chain(pods).chain(rest).collect();
    if findings.is_empty() {
        findings.push(Finding { what: WHAT, outcome: Ok(format!("all of {vms}")) });
    }
    findings
}

fn note(why: String, remedy: &str) -> Finding {
    Finding { what: WHAT, outcome: Err(Problem::new(why, remedy).minor()) }
}

fn describe(pod: &Outdated) -> String {
    let Outdated { id, namespace, name, parts } = pod;
    // As long as in crictl. The id comes from the daemon, and at best the API server has checked the names.
    let id: String = id.chars().take(13).collect();
    let shown = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
    format!("pod {}/{} ({id}) runs on another {}", shown(namespace), shown(name), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(restart_needed: bool, pods: usize) -> Vec<String> {
        let outdated = (0..pods).map(|number| Outdated {
            id: format!("{number:064}"),
            namespace: "shop".into(),
            name: format!("web-{number}\u{1b}"),
            parts: vec!["vmm".into(), "kernel".into()],
        });
        let versions = Versions { restart_needed, vms: pods + 1, outdated: outdated.collect() };
        findings(versions).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_pod_on_older_parts_is_a_note_with_its_name_and_what_to_do() {
        assert_eq!(lines(false, 0), ["ok    VMs of this installation: all of 1"]);
        let noted = lines(false, 1);
        assert_eq!(noted.len(), 1);
        assert!(
            noted[0].starts_with("note  VMs of this installation: pod shop/web-0 (0000000000000) "),
            "{noted:?}"
        );
        assert!(noted[0].contains("vmm, kernel") && noted[0].ends_with(REMEDY), "{noted:?}");
    }

    #[test]
    fn a_daemon_with_replaced_files_is_named_first_and_many_pods_are_counted() {
        let noted = lines(true, 1000);
        assert_eq!(noted.len(), 1 + LINES_MAX + 1);
        assert!(noted[0].contains("systemctl restart podvisor"), "{}", noted[0]);
        assert!(noted[LINES_MAX + 1].contains("960 more pods"), "{}", noted[LINES_MAX + 1]);
    }

    #[test]
    fn without_a_daemon_nothing_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.paths.socket = Some(dir.path().join("no.sock"));
        let findings = examine(&config);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].outcome.is_ok(), "{findings:?}");
    }
}
