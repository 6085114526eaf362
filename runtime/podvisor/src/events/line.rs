//! One event as a line for people or for programs. Pure.

use std::collections::BTreeMap;

use proto_cri::v1::{self, ContainerEventType};
use serde::Serialize;

use crate::show::{escape, units};

/// The width of the longest kind.
const KIND_WIDTH: usize = 8;

/// Names by ids: the event of a container's removal has only its id, and so has that of a pod's removal in
/// another runtime.
#[derive(Debug, Default)]
pub(super) struct Names {
    containers: BTreeMap<String, String>,
    pods: BTreeMap<String, v1::PodSandboxMetadata>,
}

/// An event, or a note about possibly missing events.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    time: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) pod: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) pod_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    container: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    container_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

impl Names {
    /// The names of the listed pods and containers.
    pub(super) fn of(pods: &[v1::PodSandbox], containers: &[v1::Container]) -> Names {
        let name = |one: &v1::Container| {
            one.metadata.as_ref().map(|metadata| metadata.name.clone()).unwrap_or_default()
        };
        let pods = pods.iter().map(|pod| (pod.id.clone(), pod.metadata.clone().unwrap_or_default()));
        Names {
            containers: containers.iter().map(|one| (one.id.clone(), name(one))).collect(),
            pods: pods.collect(),
        }
    }

    fn learn(&mut self, event: &v1::ContainerEventResponse) {
        for one in &event.containers_statuses {
            let name = || one.metadata.as_ref().map(|metadata| metadata.name.clone()).unwrap_or_default();
            self.containers.entry(one.id.clone()).or_insert_with(name);
        }
        if let Some(pod) = &event.pod_sandbox_status {
            self.pods.entry(pod.id.clone()).or_insert_with(|| pod.metadata.clone().unwrap_or_default());
        }
    }

    /// The id and the name of the event's pod. Both are empty if nobody knows them.
    fn pod(&self, event: &v1::ContainerEventResponse) -> (String, v1::PodSandboxMetadata) {
        match (&event.pod_sandbox_status, self.pods.get(&event.container_id)) {
            (Some(pod), _) => (pod.id.clone(), pod.metadata.clone().unwrap_or_default()),
            (None, Some(name)) => (event.container_id.clone(), name.clone()),
            (None, None) => Default::default(),
        }
    }
}

impl Line {
    /// The event's line. Adds the event's pod and containers to the names, and drops a removed one.
    pub(super) fn of(event: &v1::ContainerEventResponse, names: &mut Names) -> Line {
        names.learn(event);
        let (pod_id, v1::PodSandboxMetadata { name, namespace, .. }) = names.pod(event);
        let (kind, is_end) = match event.container_event_type() {
            ContainerEventType::ContainerCreatedEvent => ("created", false),
            ContainerEventType::ContainerStartedEvent => ("started", false),
            ContainerEventType::ContainerStoppedEvent => ("stopped", true),
            ContainerEventType::ContainerDeletedEvent => ("deleted", false),
        };
        let of_container = event.container_id != pod_id;
        let container = names.containers.get(&event.container_id).cloned().unwrap_or_default();
        if event.container_event_type() == ContainerEventType::ContainerDeletedEvent {
            names.containers.remove(&event.container_id);
            names.pods.remove(&event.container_id);
        }
        let status = event.containers_statuses.iter().find(|one| is_end && one.id == event.container_id);
        Line {
            time: units::time(event.created_at),
            kind,
            namespace,
            pod: name,
            pod_id,
            container,
            container_id: if of_container { event.container_id.clone() } else { String::new() },
            exit_code: status.map(|status| status.exit_code),
            reason: status.map(|status| status.reason.clone()).unwrap_or_default(),
            message: status.map(|status| status.message.clone()).unwrap_or_default(),
        }
    }

    /// The line for a change of the stream itself at this time.
    pub(super) fn of_stream(kind: &'static str, at_ns: i64, message: String) -> Line {
        Line {
            time: units::time(at_ns),
            kind,
            namespace: String::new(),
            pod: String::new(),
            pod_id: String::new(),
            container: String::new(),
            container_id: String::new(),
            exit_code: None,
            reason: String::new(),
            message,
        }
    }

    /// The line for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}  {:KIND_WIDTH$}", self.time, self.kind);
        if !self.pod_id.is_empty() {
            text += &format!("  {}/{}", self.namespace, self.pod);
        }
        if !self.container_id.is_empty() {
            let name = if self.container.is_empty() { units::UNKNOWN } else { &self.container };
            text += &format!("/{name}  {}", units::short(&self.container_id));
        } else if !self.pod_id.is_empty() {
            text += &format!("  pod {}", units::short(&self.pod_id));
        }
        if let Some(code) = self.exit_code {
            text += &format!("  exit code {code}");
        }
        for (part, open, close) in [(&self.reason, " (", ")"), (&self.message, "  ", "")] {
            if !part.is_empty() {
                text += &format!("{open}{part}{close}");
            }
        }
        escape::line(&text).into_owned() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::tests as made;
    use crate::show::json;

    fn event(
        id: &str,
        kind: ContainerEventType,
        containers: Vec<v1::ContainerStatus>,
    ) -> v1::ContainerEventResponse {
        v1::ContainerEventResponse {
            container_id: id.into(),
            container_event_type: kind.into(),
            created_at: 1_700_000_000_000_000_000,
            pod_sandbox_status: Some(v1::PodSandboxStatus {
                id: "p1".into(),
                metadata: made::pod("p1", "shop", "web", true).metadata,
                ..Default::default()
            }),
            containers_statuses: containers,
        }
    }

    fn app() -> v1::ContainerStatus {
        v1::ContainerStatus {
            id: "c1".into(),
            metadata: Some(v1::ContainerMetadata { name: "app".into(), attempt: 0 }),
            exit_code: 137,
            reason: "OOMKilled".into(),
            message: "no\nmemory\x1b[2J".into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_containers_life_has_a_line_for_each_event_with_its_name_to_the_end() {
        use ContainerEventType::{ContainerDeletedEvent, ContainerStartedEvent, ContainerStoppedEvent};
        let mut names = Names::default();
        let mut line = |kind, containers| Line::of(&event("c1", kind, containers), &mut names).text();
        let at = "2023-11-14T22:13:20.000Z";
        assert_eq!(line(ContainerStartedEvent, vec![app()]), format!("{at}  started   shop/web/app  c1\n"));
        assert_eq!(
            line(ContainerStoppedEvent, vec![app()]),
            format!("{at}  stopped   shop/web/app  c1  exit code 137 (OOMKilled)  no\\nmemory\\u{{1b}}[2J\n")
        );
        assert_eq!(line(ContainerDeletedEvent, vec![]), format!("{at}  deleted   shop/web/app  c1\n"));
        // Its name is forgotten with it.
        assert_eq!(line(ContainerDeletedEvent, vec![]), format!("{at}  deleted   shop/web/-  c1\n"));
    }

    #[test]
    fn a_pods_own_event_names_no_container() {
        let line = Line::of(
            &event("p1", ContainerEventType::ContainerCreatedEvent, vec![app()]),
            &mut Names::default(),
        );
        assert_eq!(line.text(), "2023-11-14T22:13:20.000Z  created   shop/web  pod p1\n");
        let json: serde_json::Value = serde_json::from_str(&json::line(&line).unwrap()).unwrap();
        assert_eq!(
            (&json["kind"], &json["pod"], &json["podId"]),
            (&"created".into(), &"web".into(), &"p1".into())
        );
        assert!(json.get("containerId").is_none() && json.get("exitCode").is_none(), "{json}");
    }

    #[test]
    fn names_of_a_list_are_known_before_their_first_event() {
        let listed = made::container("c1", "p1", "app", v1::ContainerState::ContainerRunning);
        let mut names = Names::of(&[], &[listed]);
        let line = Line::of(&event("c1", ContainerEventType::ContainerDeletedEvent, vec![]), &mut names);
        assert!(line.text().contains("shop/web/app"), "{}", line.text());
    }

    #[test]
    fn a_removed_pod_of_another_runtime_has_its_name() {
        let deleted = v1::ContainerEventResponse {
            pod_sandbox_status: None,
            ..event("p1", ContainerEventType::ContainerDeletedEvent, vec![])
        };
        let text = |names: &mut Names| Line::of(&deleted, names).text();
        let at = "2023-11-14T22:13:20.000Z";
        let mut learnt = Names::default();
        Line::of(&event("c1", ContainerEventType::ContainerStoppedEvent, vec![app()]), &mut learnt);
        let mut listed = Names::of(&[made::pod("p1", "shop", "web", true)], &[]);
        for names in [&mut learnt, &mut listed] {
            assert_eq!(text(names), format!("{at}  deleted   shop/web  pod p1\n"));
            assert_eq!(text(names), format!("{at}  deleted /-  p1\n"), "its name is forgotten with it");
        }
    }

    #[test]
    fn a_break_of_the_stream_is_a_line_among_the_events() {
        let line = Line::of_stream("broken", 1_700_000_000_000_000_000, "it ended".into());
        assert_eq!(line.text(), "2023-11-14T22:13:20.000Z  broken    it ended\n");
        assert_eq!(json::line(&line).unwrap().matches("\":").count(), 3);
    }
}
