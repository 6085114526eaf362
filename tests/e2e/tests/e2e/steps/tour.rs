//! The tour: passes the points outside of all calls with tested steps. With it, a run passes every point, or
//! fails and names the missing ones.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use proto_cri::v1;
use runtime_store::{Batch, Store, Table};
use tests_e2e::client::Client;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::memory_shortage::MemoryShortage;
use tests_e2e::spec;
use tests_e2e::wait::{until, until_seen};

use super::call::{Call, NAME};
use super::{Scene, bounded, vmms};
use crate::session;

const MIB: i64 = 1 << 20;

/// The memory limit of the tour's container before and after it grows; the first fits into the handler's
/// smallest VM.
const MEMORY: [i64; 2] = [32 * MIB, 256 * MIB];

/// Points only passed at the end of the whole run: for a guest silent for minutes, and after dozens of pods.
pub(super) const OF_THE_WHOLE_RUN: [&str; 2] = ["vmm.console", "vmm_log.prune"];

/// Points without a step: of a node with another runtime (`upstream.rs`), with a template of its network,
/// with disks of the node (`devices.rs`), and with sockets of the node (`host_sockets.rs`).
pub(super) const OF_OTHER_NODES: [&str; 15] = [
    "upstream.directory",
    "upstream.write",
    "upstream.rename",
    "cni.config.write",
    "vmm.unplug",
    "connector.spawn",
    "agent.attach_host_sockets",
    // No handler of the scene has templates.
    "vmm.restore",
    "vmm.save",
    "agent.wake",
    "agent.prepare_pod",
    "template.directory",
    "template.write",
    "template.rename",
    "template.remove",
];

impl Scene {
    /// Everything except slow parts of minutes.
    pub(super) async fn tour(&mut self) {
        let subject = self.prepare(Call::PullImage).await;
        self.order("");
        let mut client = self.host.client();
        let config = self.growing_pod();
        let mut volumes = KubeletVolumes::of(&config).unwrap();
        let memory = volumes.memory("memory", 1 << 20, 0).unwrap();
        let disk = volumes.disk("disk", 0o777, 0).unwrap();
        let secret = volumes.publish("secret", "secret", &[("key", "x")], (0o400, 0)).unwrap();
        let pod = client.run_pod(&config).await.unwrap();
        let container = self.listening(&mut client, &pod, [&memory, &disk, &secret]).await;
        volumes.resize("memory", 2 << 20).unwrap();
        client.prints(&container, "stat -f -c %b /memory", "512\n").await.unwrap();
        figures(&mut client, &pod, &container).await;
        grow(&mut client, &pod, &container).await;
        self.run_short().await;
        client.stop(&container, 0).await.unwrap();
        client.remove(&container).await.unwrap();
        self.clear(&subject, "the tour of a pod's life").await;
        self.freeze().await;
        self.clear(&subject, "the tour of a frozen VM").await;
        self.spoil().await;
        self.clear(&subject, "the tour of a spoiled record").await;
    }

    /// A guest with a silent agent, until it is given up.
    pub(super) async fn silence(&mut self) {
        let subject = self.prepare(Call::PullImage).await;
        self.order("agent.connect hang 1");
        let config = spec::pod(NAME, self.host.dir());
        let silent = bounded(self.host.client().run_pod(&config)).await.unwrap_err();
        assert!(silent.message().contains("the agent said nothing"), "{silent}");
        self.order("");
        self.clear(&subject, "the tour of a silent guest").await;
    }

    /// The subject of a tour, with changeable limits.
    fn growing_pod(&self) -> v1::PodSandboxConfig {
        let mut config = spec::pod(NAME, self.host.dir());
        let linux = config.linux.get_or_insert_default();
        linux.resources = Some(limits(MEMORY[0]));
        linux.overhead = Some(v1::LinuxContainerResources::default());
        config
    }

    /// A container with a directory of the host, a volume in memory, a secret, and a used input.
    async fn listening(&self, client: &mut Client, pod: &str, of_kubelet: [&Path; 3]) -> String {
        let volume = self.host.dir().join("volume");
        std::fs::create_dir_all(&volume).unwrap();
        let mut config = spec::shell(NAME, &self.image, "read line; echo $line >/volume/heard; sleep 100000");
        config.stdin = true;
        let [memory, disk, secret] = of_kubelet;
        config.mounts = vec![mounted(&volume, "/volume"), mounted(memory, "/memory"), mounted(disk, "/disk")];
        config.mounts.push(v1::Mount { readonly: true, ..mounted(secret, "/secret") });
        config.linux.as_mut().unwrap().resources = Some(limits(MEMORY[0]));
        let container = client.run(pod, config).await.unwrap();
        let session = session::attach(client, &container, true).await;
        session.say("stdin", "said\n", false).await;
        let heard = volume.join("heard");
        until_seen("the container to have heard its input", async || {
            let heard = std::fs::read_to_string(&heard);
            if heard.as_ref().is_ok_and(|text| text == "said\n") { Ok(()) } else { Err(heard) }
        })
        .await;
        container
    }

    /// Waits until guests are asked for their page cache.
    async fn run_short(&self) {
        let _shortage = MemoryShortage::pretend(self.host.dir()).unwrap();
        until("guests to be asked for what they cache", async || {
            let passed = self.host.daemon.fail_points().all_passed().unwrap();
            passed.iter().any(|passed| passed.point == "agent.reclaim")
        })
        .await;
    }

    /// Stops a pod with an unresponsive VMM.
    async fn freeze(&self) {
        let mut client = self.host.client();
        let pod = client.run_pod(&spec::pod(NAME, self.host.dir())).await.unwrap();
        for vmm in vmms().into_iter().filter(|vmm| !self.others.contains(vmm)) {
            kill(vmm, Signal::SIGSTOP).unwrap();
        }
        bounded(client.stop_pod(&pod)).await.unwrap();
    }

    /// Starts the daemon over a store with an unreadable record.
    async fn spoil(&mut self) {
        self.host.daemon.stop().await.unwrap();
        spoil(&self.host.dir().join("state/store.redb"));
        self.host.daemon.kill_and_restart().await.unwrap();
        self.kills += 1;
    }
}

/// Stores an invalid record of a pod.
fn spoil(store: &Path) {
    let store = Store::open(store).unwrap();
    store.commit(Batch::new().put(Table::PodRecords, "spoiled", &7).unwrap()).unwrap();
}

fn limits(memory: i64) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources { memory_limit_in_bytes: memory, ..Default::default() }
}

/// Asks for the figures of a pod and of its container.
async fn figures(client: &mut Client, pod: &str, container: &str) {
    let request = v1::ContainerStatsRequest { container_id: container.into() };
    client.runtime.container_stats(request).await.unwrap();
    let request = v1::PodSandboxStatsRequest { pod_sandbox_id: pod.into() };
    client.runtime.pod_sandbox_stats(request).await.unwrap();
    client.pod_status_verbose(pod).await.unwrap();
}

/// Raises the limits of a pod and of its container.
async fn grow(client: &mut Client, pod: &str, container: &str) {
    let request = v1::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: pod.into(),
        resources: Some(limits(MEMORY[1])),
        overhead: None,
    };
    client.runtime.update_pod_sandbox_resources(request).await.unwrap();
    let request = v1::UpdateContainerResourcesRequest {
        container_id: container.into(),
        linux: Some(limits(MEMORY[1])),
        ..Default::default()
    };
    client.runtime.update_container_resources(request).await.unwrap();
}
