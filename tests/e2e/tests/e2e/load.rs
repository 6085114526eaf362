//! The base of tests under load: their sizes, and a container with a view of the whole guest.

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};

/// `full` (`make load`) or `soak` (`make soak`) for larger sizes. They take minutes and hours on a software
/// node.
const LOAD_VARIABLE: &str = "PODVISOR_E2E_LOAD";

/// The normal size, the full one, or a soak's.
pub(crate) fn size([normal, full, soak]: [usize; 3]) -> usize {
    match std::env::var(LOAD_VARIABLE).as_deref() {
        Err(_) | Ok("") => normal,
        Ok("full") => full,
        Ok("soak") => soak,
        Ok(other) => panic!("{LOAD_VARIABLE} is {other:?}: full and soak are known"),
    }
}

/// A running container, in its own pod.
pub(crate) async fn container(host: &Host, client: &mut Client, name: &str) -> (String, String) {
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod(name, host.dir())).await.unwrap();
    let id = client.run(&pod, spec::shell("main", &image, "sleep 100000")).await.unwrap();
    (pod, id)
}

/// One more container in the pod, with a view of the guest's own processes.
pub(crate) async fn watcher(host: &Host, client: &mut Client, pod: &str) -> String {
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut config = spec::shell("watcher", &image, "sleep 100000");
    let context = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    context.namespace_options.as_mut().unwrap().pid = v1::NamespaceMode::Node.into();
    let added = vec!["SYS_PTRACE".to_owned()];
    context.capabilities = Some(v1::Capability { add_capabilities: added, ..Default::default() });
    client.run(pod, config).await.unwrap()
}

/// A figure of `/proc/<pid>/status` in KiB.
pub(crate) fn status_kib(status: &str, name: &str) -> u64 {
    let line = status.lines().find(|line| line.split(':').next() == Some(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
