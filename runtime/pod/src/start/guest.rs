//! The last step of a start: the taps are plugged, and the agent is configured for its pod.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use proto_agent::agent::{ConfigurePodRequest, Interface, Neighbour, NftTable, Route, Sysctl, UserNamespace};
use proto_vmm::{Device, Slot};
use runtime_guest::ReplayedSettings;
use runtime_net::{NetError, PodNeighbour, PodNetwork, PodNftTable, PodRoute, PodSettings, PodSysctl};
use runtime_spec::{HostResolvConf, Namespaces};

use super::context::StartContext;
use super::guest_files;
use crate::backend::BackendError;
use crate::blocking::blocking_within;
use crate::clock;
use crate::error::PodError;
use crate::host::cgroup;
use crate::live::Live;
use crate::node::Node;

/// Size of `/dev/shm`, as containers are used to it, in bytes.
const SHM_BYTES: u64 = 64 << 20;

/// How long reading the host's `resolv.conf` may take.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// Configures the booted guest. Returns the network settings missing in the guest, for people.
pub(super) async fn configure(
    context: &StartContext,
    network: PodNetwork,
    live: &Live,
) -> Result<Vec<String>, PodError> {
    let PodNetwork { interfaces, routes, neighbours, ips, settings, .. } = network;
    let plugged = context.watch.time("plug", plug(interfaces, live)).await?;
    let mut request = request(context, &ips).await?;
    request.interfaces = plugged;
    request.balloon_slot = plug_balloon(live).await?;
    request.routes = routes.into_iter().map(route).collect();
    request.neighbours = neighbours.into_iter().map(neighbour).collect();
    request.network_sysctls = settings.sysctls.iter().map(sysctl).collect();
    request.nft_tables = settings.nft_tables.iter().map(nft_table).collect();
    let configuring = live.call("configuring the guest", live.agent.configure_pod(request));
    let replayed = context.watch.time("configure", configuring).await?;
    settle(settings, &replayed)
}

/// The settings missing in the guest, from its agent's answer.
fn settle(settings: PodSettings, replayed: &ReplayedSettings) -> Result<Vec<String>, PodError> {
    let settled = if replayed.known {
        settings.not_taken(&replayed.sysctl_failures, &replayed.nft_failures)
    } else {
        settings.taken_by_nobody("the guest's agent is of an earlier build")
    };
    let refused =
        |error: NetError| PodError::internal("setting up the network").because(BackendError::from(error));
    settled.map(|settings| settings.passed_by).map_err(refused)
}

/// Plugs the taps into the network slots, in order.
async fn plug(interfaces: Vec<runtime_net::PodInterface>, live: &Live) -> Result<Vec<Interface>, PodError> {
    let slots: Vec<Slot> = Slot::nets().collect();
    if interfaces.len() > slots.len() {
        let text = format!("the network has {} interfaces, and a VM takes {}", interfaces.len(), slots.len());
        return Err(PodError::internal(text));
    }
    let mut plugged = Vec::new();
    for (slot, interface) in slots.into_iter().zip(interfaces) {
        let (mac, mtu) = (interface.mac, interface.mtu);
        let doing = format!("plugging the interface {}", interface.name);
        live.call(&doing, live.vm.plug(slot, Device::Net { tap: interface.tap, mac, mtu })).await?;
        plugged.push(Interface {
            name: interface.name,
            slot: u32::from(slot.number()),
            mac: guest_files::mac(mac),
            mtu: u32::from(mtu),
            addresses: interface.addresses,
            ..Interface::default()
        });
    }
    Ok(plugged)
}

/// Plugs the balloon and returns its slot; 0 if the VMM is too old for one. Through it the guest's free
/// memory goes back to the node. Not earlier: the guest's kernel would find it, and spend time on it, during
/// boot.
async fn plug_balloon(live: &Live) -> Result<u32, PodError> {
    if !live.vm.has_balloon() {
        return Ok(0);
    }
    live.call("plugging the balloon", live.vm.plug(Slot::BALLOON, Device::Balloon)).await?;
    Ok(u32::from(Slot::BALLOON.number()))
}

async fn request(context: &StartContext, ips: &[IpAddr]) -> Result<ConfigurePodRequest, PodError> {
    let spec = &context.record.spec;
    let hostname = spec.effective_hostname().to_owned();
    let resolv_conf = match &spec.dns {
        Some(dns) => dns.resolv_conf().into_bytes(),
        None => host_resolv_conf(&context.node).await?,
    };
    Ok(ConfigurePodRequest {
        resolv_conf,
        hosts: guest_files::hosts(&hostname, ips).into_bytes(),
        hostname,
        scratch_slot: u32::from(Slot::SCRATCH.number()),
        shared_slot: u32::from(Slot::FS.number()),
        shared_pid_namespace: spec.shares_pids(),
        random_seed: rand::random::<[u8; 64]>().to_vec(),
        realtime_ns: clock::now_ns(),
        shm_bytes: SHM_BYTES,
        vcpus: u32::from(context.record.bounds.boot.vcpus),
        sysctls: spec.guest_sysctls().into_iter().collect::<HashMap<_, _>>(),
        default_sysctls: spec.default_sysctls(),
        user_namespace: user_namespace(&spec.namespaces).into(),
        memory_max_bytes: context.record.bounds.most.memory_bytes,
        pids_max: cgroup::pids_limit(&context.node.places.cgroup_root, &spec.cgroup_parent).unwrap_or(0),
        ..ConfigurePodRequest::default()
    })
}

/// The pod's user namespace, if it has one. The checked spec has one mapping of each kind.
fn user_namespace(namespaces: &Namespaces) -> Option<UserNamespace> {
    let (uids, gids) = (namespaces.uids.first()?, namespaces.gids.first()?);
    Some(UserNamespace {
        uid_host: uids.host_id,
        uid_length: uids.length,
        gid_host: gids.host_id,
        gid_length: gids.length,
        ..UserNamespace::default()
    })
}

/// Reads the host's own name servers, as far as the guest can reach them. A host without `resolv.conf` has no
/// name service to pass on.
async fn host_resolv_conf(node: &Node) -> Result<Vec<u8>, PodError> {
    let (path, resolved) = (node.places.resolv_conf.clone(), node.places.resolved_conf.clone());
    let doing = format!("reading {}", path.display());
    let read = move || HostResolvConf::reachable(&read_if_there(&path)?, || read_if_there(&resolved));
    let found = blocking_within(READ_WITHIN, &node.pools.installation, &doing, read).await?;
    if found.is_cut_off() {
        tracing::warn!(
            servers = %found.unreachable.join(" "),
            "the node's name servers are on its loopback, so the pod has none"
        );
    }
    Ok(found.text)
}

/// The file's bytes. Empty without a file.
fn read_if_there(path: &Path) -> std::io::Result<Vec<u8>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

fn route(route: PodRoute) -> Route {
    Route {
        interface: route.interface,
        destination: route.destination,
        gateway: route.gateway,
        scope: route.scope,
        onlink: route.onlink,
        metric: route.metric,
        mtu: route.mtu,
        source: route.source,
        advmss: route.advmss,
        ..Route::default()
    }
}

fn sysctl(sysctl: &PodSysctl) -> Sysctl {
    Sysctl { path: sysctl.path.clone(), value: sysctl.value.clone(), ..Sysctl::default() }
}

fn nft_table(table: &PodNftTable) -> NftTable {
    NftTable { messages: table.messages.clone(), ..NftTable::default() }
}

fn neighbour(neighbour: PodNeighbour) -> Neighbour {
    Neighbour {
        interface: neighbour.interface,
        address: neighbour.address.to_string(),
        mac: guest_files::mac(neighbour.mac),
        ..Neighbour::default()
    }
}
