//! The rows of the table: one for each container, and one for a pod without containers. Pure.

use crate::listing::{Container, Pod, State};
use crate::show::table::Column;
use crate::show::{escape, units};

/// The table's columns.
pub(super) const COLUMNS: [Column; 9] = [
    Column::cut("NAMESPACE"),
    Column::cut("POD"),
    Column::cut("CONTAINER"),
    Column::whole("STATE"),
    Column::figure("RESTARTS"),
    Column::whole("AGE"),
    Column::cut("RUNTIME"),
    Column::cut("IMAGE"),
    Column::whole("ID"),
];

/// The rows of these pods.
pub(super) fn rows(pods: &[Pod], now_ns: i64) -> Vec<Vec<String>> {
    let of_pod = |pod: &Pod| match &pod.containers[..] {
        [] => vec![pod_row(pod, now_ns)],
        containers => containers.iter().map(|container| row(pod, container, now_ns)).collect(),
    };
    pods.iter().flat_map(of_pod).collect()
}

/// A line for each container in an unknown state, with the reason.
pub(super) fn reasons(pods: &[Pod]) -> Vec<String> {
    let unknown = pods.iter().flat_map(|pod| {
        let containers = pod.containers.iter().filter(|container| container.state == State::Unknown);
        containers.map(move |container| (pod, container))
    });
    let line = |(pod, container): (&Pod, &Container)| {
        let why =
            if container.message.is_empty() { "the daemon does not say why" } else { &container.message };
        let text = format!("{}/{}/{} is UNKNOWN: {why}", pod.namespace, pod.name, container.name);
        escape::line(&text).into_owned()
    };
    unknown.map(line).collect()
}

fn row(pod: &Pod, container: &Container, now_ns: i64) -> Vec<String> {
    let state = match container.state {
        // Containers of a pod without a VM do not run. If their state says otherwise, it needs attention.
        State::Created | State::Running if !pod.ready => format!("{}, pod not ready", container.state.name()),
        State::Running if pod.waits_for_room => format!("{}, disk full", container.state.name()),
        state => state.name().to_owned(),
    };
    vec![
        pod.namespace.clone(),
        pod.name.clone(),
        container.name.clone(),
        state,
        container.attempt.to_string(),
        units::age(container.created_at, now_ns),
        pod.runtime_name(),
        container.image.clone(),
        units::short(&container.id).to_owned(),
    ]
}

fn pod_row(pod: &Pod, now_ns: i64) -> Vec<String> {
    vec![
        pod.namespace.clone(),
        pod.name.clone(),
        units::UNKNOWN.to_owned(),
        if pod.ready { "pod ready" } else { "pod not ready" }.to_owned(),
        pod.attempt.to_string(),
        units::age(pod.created_at, now_ns),
        pod.runtime_name(),
        units::UNKNOWN.to_owned(),
        units::short(&pod.id).to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use proto_cri::v1::ContainerState::{ContainerRunning, ContainerUnknown};

    use super::*;
    use crate::daemon::NodeStatus;
    use crate::listing::{listing, tests as made};
    use crate::show::table;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn each_container_has_a_row_and_so_has_a_pod_without_one() {
        let pods = vec![made::pod("aa1", "shop", "web", true), made::pod("bb1", "shop", "idle", false)];
        let containers = vec![made::container("0123456789abcdef", "aa1", "app", ContainerRunning)];
        let status = NodeStatus { in_vms: Some(["aa1".to_owned()].into()), ..NodeStatus::default() };
        let lines = table::render(&COLUMNS, &rows(&listing(pods, containers, &status), 9 * SECOND), None);
        let words = |line: &String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            words(&lines[1]),
            ["shop", "idle", "-", "pod", "not", "ready", "0", "8s", "upstream", "-", "bb1"]
        );
        assert_eq!(words(&lines[2]), ["shop", "web", "app", "running", "0", "8s", "vm", "0123456789ab"]);
    }

    #[test]
    fn an_unknown_state_has_its_reason_below_the_table() {
        let containers = vec![
            made::container("11", "aa1", "app", ContainerUnknown),
            made::container("22", "aa1", "side", ContainerUnknown),
        ];
        let mut pods =
            listing(vec![made::pod("aa1", "shop", "web", false)], containers, &NodeStatus::default());
        pods[0].containers[0].message = "the pod's VM could not be ended: \x1b[2J".into();
        assert_eq!(
            reasons(&pods),
            [
                "shop/web/app is UNKNOWN: the pod's VM could not be ended: \\u{1b}[2J",
                "shop/web/side is UNKNOWN: the daemon does not say why",
            ]
        );
    }

    #[test]
    fn a_container_whose_writes_wait_for_room_on_the_node_is_marked() {
        let containers = vec![made::container("11", "aa1", "app", ContainerRunning)];
        let status = NodeStatus { waiting_for_room: ["aa1".to_owned()].into(), ..NodeStatus::default() };
        let pods = listing(vec![made::pod("aa1", "shop", "web", true)], containers, &status);
        assert_eq!(rows(&pods, 1)[0][3], "running, disk full");
    }

    #[test]
    fn a_container_that_should_run_in_a_pod_that_does_not_is_marked() {
        let containers = vec![made::container("11", "aa1", "app", ContainerRunning)];
        let pods = listing(vec![made::pod("aa1", "shop", "web", false)], containers, &NodeStatus::default());
        assert_eq!(rows(&pods, 1)[0][3], "running, pod not ready");
    }
}
