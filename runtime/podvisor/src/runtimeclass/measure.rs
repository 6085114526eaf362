//! Boots VMs of several sizes, one after the other, as `podvisor run` does: with a private daemon and real
//! pods, but without containers. Reads the memory of each, inside and on the node. Pods and daemon are
//! removed at the end.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use proto_cri::v1;
use runtime_spec::VmCosts;
use serde::Deserialize;

use super::vmm_memory::VmmMemory;
use crate::client::{Client, refused};
use crate::config::{Config, Handler};
use crate::run::{daemon, namespaces, pod_metadata};
use crate::show::out;

/// Sizes of pods for the measured VMs, in bytes. The last is large enough for costs that grow with the size
/// to stand out from the noise between boots. It is small enough for any node, because the VM touches little
/// of it.
const SIZES: [u64; 3] = [128 << 20, 512 << 20, 1 << 30];

/// Readings of each VM. The largest counts: a guest's start goes on for a moment after its agent has
/// answered.
const READINGS: u32 = 5;

/// The pause before each reading.
const INTERVAL: Duration = Duration::from_millis(200);

/// Namespace of the pods.
const NAMESPACE: &str = "podvisor-runtimeclass";

/// The whole measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Measurement {
    /// Values of each VM, the smallest first; at least two.
    pub(super) points: Vec<Point>,
    /// Releases of VMM, kernel and agent, as reported by them.
    pub(super) releases: [String; 3],
}

/// Memory of one VM, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Point {
    /// The VM's memory.
    pub(super) vm_bytes: u64,
    pub(super) vcpus: u8,
    /// Memory unavailable from the guest's kernel: its own image and page structures.
    pub(super) reserved_bytes: u64,
    /// Memory unavailable to containers: `reserved_bytes`, the agent, the kernel's objects, and its free
    /// reserve.
    pub(super) guest_bytes: u64,
    /// The agent's part.
    pub(super) agent_bytes: u64,
    pub(super) vmm: VmmMemory,
}

impl Point {
    /// The larger of both values, each by itself.
    fn at_most(self, other: Point) -> Point {
        Point {
            reserved_bytes: self.reserved_bytes.max(other.reserved_bytes),
            guest_bytes: self.guest_bytes.max(other.guest_bytes),
            agent_bytes: self.agent_bytes.max(other.agent_bytes),
            vmm: if other.vmm.total_bytes() > self.vmm.total_bytes() { other.vmm } else { self.vmm },
            ..other
        }
    }
}

/// Measures VMs of this handler.
///
/// # Errors
/// The private daemon or a VM does not start, or the handler allows fewer than two sizes.
pub(super) async fn measure(
    config: &Config,
    config_file: Option<&Path>,
    handler: &Handler,
) -> anyhow::Result<Measurement> {
    let sizes = sizes(handler)?;
    out::complain(format_args!("measuring VMs of {} sizes", sizes.len()));
    let network = daemon::PodNetwork::OfItsOwn;
    let daemon = daemon::start(config, config_file, network).await.context("starting a private daemon")?;
    let measured = measure_sizes(&mut daemon.client(), &sizes, handler).await;
    let stopped = daemon.stop().await;
    let measured = measured?;
    stopped?;
    Ok(measured)
}

/// The sizes with VMs allowed by the handler.
fn sizes(handler: &Handler) -> anyhow::Result<Vec<u64>> {
    let most = match handler.memory_max_mib {
        Some(mib) => mib.saturating_mul(1 << 20),
        None => nix::sys::sysinfo::sysinfo().context("asking how much memory there is")?.ram_total(),
    };
    let vm = |size: u64| size.saturating_add(VmCosts::COUNTED.overhead(size).guest_bytes);
    let sizes: Vec<u64> = SIZES.into_iter().filter(|size| vm(*size) <= most).collect();
    if sizes.len() < 2 {
        bail!(
            "VMs of the handler {} have {} MiB at most, too little for two sizes",
            handler.name,
            most >> 20
        );
    }
    Ok(sizes)
}

async fn measure_sizes(client: &mut Client, sizes: &[u64], handler: &Handler) -> anyhow::Result<Measurement> {
    let mut measurement = Measurement::default();
    for size in sizes {
        let request =
            v1::RunPodSandboxRequest { config: Some(pod(*size)?), runtime_handler: handler.name.clone() };
        let pod = client.runtime.run_pod_sandbox(request).await.map_err(refused)?.into_inner().pod_sandbox_id;
        let read = read(client, &pod).await;
        let removing = v1::RemovePodSandboxRequest { pod_sandbox_id: pod };
        let removed = client.runtime.remove_pod_sandbox(removing).await.map_err(refused);
        let (point, releases) = read?;
        removed.context("removing a measured pod")?;
        measurement.points.push(point);
        measurement.releases = releases;
    }
    Ok(measurement)
}

/// A pod with a limit of memory and none of CPUs, like most pods: its VM has all of the handler's vCPUs.
fn pod(memory: u64) -> anyhow::Result<v1::PodSandboxConfig> {
    let name = format!("measured-{}", memory >> 20);
    Ok(v1::PodSandboxConfig {
        metadata: Some(pod_metadata(&name, NAMESPACE)),
        hostname: name,
        linux: Some(v1::LinuxPodSandboxConfig {
            resources: Some(v1::LinuxContainerResources {
                memory_limit_in_bytes: i64::try_from(memory)?,
                ..Default::default()
            }),
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(v1::NamespaceMode::Container)),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// The part of a verbose PodSandboxStatus used here.
#[derive(Debug, Deserialize)]
struct Info {
    vm: Size,
    vmm: Option<Vmm>,
    guest: Option<Guest>,
    versions: Versions,
}

#[derive(Debug, Deserialize)]
struct Size {
    memory_bytes: u64,
    vcpus: u8,
}

#[derive(Debug, Deserialize)]
struct Vmm {
    pid: u32,
}

#[derive(Debug, Deserialize)]
struct Guest {
    total_bytes: u64,
    available_bytes: u64,
    agent_resident_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Versions {
    vmm: Option<Version>,
    kernel: Option<Version>,
    agent: Option<Version>,
}

#[derive(Debug, Deserialize)]
struct Version {
    release: String,
}

/// Reads a pod's values several times.
async fn read(client: &mut Client, pod: &str) -> anyhow::Result<(Point, [String; 3])> {
    let mut most = Point::default();
    let mut releases = Default::default();
    for _ in 0..READINGS {
        tokio::time::sleep(INTERVAL).await;
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: pod.to_owned(), verbose: true };
        let answer = client.runtime.pod_sandbox_status(request).await.map_err(refused)?.into_inner();
        let info = answer.info.get("info").context("the daemon says nothing of the VM")?;
        let info: Info = serde_json::from_str(info).context("reading the status of the VM")?;
        let (Some(vmm), Some(guest)) = (info.vmm, info.guest) else {
            bail!("the VM or its guest does not answer")
        };
        let memory = VmmMemory::read(vmm.pid, pod)?;
        most = most.at_most(point(&info.vm, &guest, memory));
        releases = [info.versions.vmm, info.versions.kernel, info.versions.agent]
            .map(|version| version.map_or_else(String::new, |version| version.release));
    }
    Ok((most, releases))
}

fn point(vm: &Size, guest: &Guest, vmm: VmmMemory) -> Point {
    Point {
        vm_bytes: vm.memory_bytes,
        vcpus: vm.vcpus,
        reserved_bytes: vm.memory_bytes.saturating_sub(guest.total_bytes),
        guest_bytes: vm.memory_bytes.saturating_sub(guest.available_bytes),
        agent_bytes: guest.agent_resident_bytes,
        vmm,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn allowing(mib: u64) -> Handler {
        Handler { memory_max_mib: Some(mib), ..Handler::default() }
    }

    #[test]
    fn sizes_are_those_that_the_handler_allows_and_two_at_least() {
        assert_eq!(sizes(&allowing(4096)).unwrap(), SIZES);
        assert_eq!(sizes(&allowing(1024)).unwrap(), SIZES[..2]);
        let refused = sizes(&allowing(256)).unwrap_err().to_string();
        assert!(refused.contains("podvisor") && refused.contains("256 MiB"), "{refused}");
    }

    #[test]
    fn the_largest_of_several_readings_counts_each_figure_by_itself() {
        let size = Size { memory_bytes: 200 * MIB, vcpus: 2 };
        let guest = |total, available, agent| Guest {
            total_bytes: total * MIB,
            available_bytes: available * MIB,
            agent_resident_bytes: agent * MIB,
        };
        let vmm = |resident_bytes| VmmMemory { resident_bytes, kernel_bytes: 1, kernel_is_whole: true };
        let first = point(&size, &guest(180, 170, 3), vmm(9));
        assert_eq!((first.reserved_bytes, first.guest_bytes), (20 * MIB, 30 * MIB));
        let most = first.at_most(point(&size, &guest(180, 165, 2), vmm(8)));
        assert_eq!((most.guest_bytes, most.agent_bytes, most.vmm), (35 * MIB, 3 * MIB, vmm(9)));
        // A guest with more available memory than its size takes nothing.
        assert_eq!(point(&size, &guest(300, 300, 0), vmm(0)).guest_bytes, 0);
    }
}
