//! `bench-list`: how long ListPodSandbox and ListContainers take with a hundred pods, over a real socket.
//!
//! A call ends with the last byte of its answer: decoding it is the client's cost, not the daemon's.
//!
//! The pods are stopped ones in a store, recovered as a restarted daemon recovers them. So there is no VM,
//! and the program runs on any host. The kubelet calls both every second, and lists all pods each time.

#![forbid(unsafe_code)]

use std::net::Ipv4Addr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use prost::Message;
use prost::bytes::Bytes;
use proto_cri::v1;
use proto_vmm::Slot;
use runtime_cri::{CgroupDriver, ConfigurationView, Cri, Node, NodeNetwork};
use runtime_image::{Images, RegistryConfig};
use runtime_net::{Cni, CniConfig};
use runtime_pod::{EarlierPods, Kernels, Pods, PodsConfig, StartConfig};
use runtime_spec::{ContainerSpec, HandlerConfig, ImageConfig, PodSpec, VmBounds};
use runtime_store::{Batch, Store, Table};
use runtime_streaming::Server;
use serde_json::json;
use tests_e2e::client::Client;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

/// Pods expected on a node.
const PODS: u32 = 100;
/// Containers of each pod: a main one and a side-car.
const CONTAINERS_PER_POD: u32 = 2;
/// Calls of each kind; the median is printed.
const CALLS: usize = 300;
/// The project's aim for the median, on hardware.
const AIM: Duration = Duration::from_millis(1);

struct NoNetwork;

impl NodeNetwork for NoNetwork {
    fn ready(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async { Ok(()) })
    }
    fn set_pod_ranges(&self, _: &[String]) -> Result<(), String> {
        Ok(())
    }
    fn pod_ranges(&self) -> Vec<String> {
        Vec::new()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let dir = tempfile::Builder::new().prefix("podvisor-bench-").tempdir()?;
    record(&dir.path().join("state")).context("writing the records")?;
    let pods = open(dir.path()).await?;
    let images = Images::open(&dir.path().join("images"), RegistryConfig::default())?;
    let view = ConfigurationView { handlers: vec![String::new()], ..ConfigurationView::default() };
    let (_views, configuration) = watch::channel(view);
    let node = Node {
        configuration,
        network: Box::new(NoNetwork),
        cgroup_driver: CgroupDriver::Cgroupfs,
        state_dir: dir.path().join("state"),
        kvm: "/dev/kvm".into(),
        watchdog: Default::default(),
    };
    let socket = dir.path().join("cri.sock");
    let listener = UnixListener::bind(&socket)?;
    let streaming = Server::start((Ipv4Addr::LOCALHOST, 0).into(), None).await?;
    tokio::spawn(runtime_cri::serve(
        Cri::new(pods, images, node, streaming),
        listener,
        std::future::pending(),
    ));

    let mut client = Grpc::new(Client::connect(&socket).await?.channel);
    let mut pods = Vec::new();
    let mut containers = Vec::new();
    for _ in 0..CALLS {
        let (listed, took) = list::<v1::PodSandbox>(&mut client, "ListPodSandbox").await?;
        pods.push(took);
        ensure!(listed.len() == PODS as usize, "{} pods are listed", listed.len());
        let (listed, took) = list::<v1::Container>(&mut client, "ListContainers").await?;
        containers.push(took);
        let expected = (PODS * CONTAINERS_PER_POD) as usize;
        ensure!(listed.len() == expected, "{} containers are listed", listed.len());
    }
    print("ListPodSandbox", &mut pods);
    print("ListContainers", &mut containers);
    Ok(())
}

/// The answer of either RPC, with its items still encoded.
#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    items: Vec<Bytes>,
}

/// Lists everything. Returns the items, and how long the answer took to arrive.
async fn list<M: Message + Default>(
    client: &mut Grpc<Channel>,
    rpc: &str,
) -> anyhow::Result<(Vec<M>, Duration)> {
    let path: PathAndQuery = format!("/runtime.v1.RuntimeService/{rpc}").parse()?;
    // Without a filter the requests are the same: empty.
    let codec: ProstCodec<v1::ListContainersRequest, Answer> = ProstCodec::default();
    let request = tonic::Request::new(v1::ListContainersRequest::default());
    let begun = Instant::now();
    client.ready().await?;
    let answer = client.unary(request, path, codec).await?;
    let took = begun.elapsed();
    let items = answer.into_inner().items;
    Ok((items.into_iter().map(M::decode).collect::<Result<_, _>>()?, took))
}

fn print(rpc: &str, took: &mut [Duration]) {
    took.sort_unstable();
    let median = took[took.len() / 2];
    let of_aim = median.as_secs_f64() / AIM.as_secs_f64();
    println!("bench: {rpc} with {PODS} pods: median {median:.2?}, {of_aim:.2} of the aim of {AIM:?}");
}

/// Opens the daemon's pods over the store's content.
async fn open(dir: &Path) -> anyhow::Result<Pods> {
    let at = |name: &str| dir.join(name);
    Ok(Pods::open(PodsConfig {
        earlier: EarlierPods::default(),
        state_dir: at("state"),
        run_dir: at("run"),
        start: StartConfig {
            handlers: vec![HandlerConfig::default()],
            default_handler: Some(String::new()),
            ..StartConfig::default()
        },
        kernels: Kernels { small: at("kernel").into(), full: at("kernel-full").into() },
        root_image: at("root").into(),
        scratch_template: at("scratch").into(),
        volume_template: at("volume").into(),
        vmm_binary: at("vmm").into(),
        images: Images::open(&at("images-of-pods"), RegistryConfig::default())?,
        cni: Cni::new(CniConfig {
            conf_dir: at("cni"),
            bin_dirs: Vec::new(),
            cache_dir: at("cache"),
            ..CniConfig::default()
        }),
        plugins: Arc::new(runtime_pod::NoPlugins),
    })
    .await?)
}

/// Stores stopped pods, with labels and annotations as the kubelet sends them.
fn record(state: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(state)?;
    let store = Store::open(&state.join("store.redb"))?;
    let mut batch = Batch::new();
    for pod in 0..PODS {
        let pod_id = format!("{pod:064x}");
        std::fs::create_dir_all(state.join("pods").join(&pod_id))?;
        let created = 1_700_000_000_000_000_000_i64 + i64::from(pod);
        let record = json!({
            "id": pod_id,
            "spec": pod_spec(pod),
            "bounds": VmBounds::default(),
            "scratch_bytes": 1 << 30,
            "created_at_ns": created,
        });
        let status = json!({
            "stage": "stopped", "vmm": null, "ips": [], "netns": null, "phases": [],
            "message": null, "unclean": null,
        });
        batch = batch.put(Table::PodRecords, &pod_id, &record)?.put(Table::PodStatuses, &pod_id, &status)?;
        for container in 0..CONTAINERS_PER_POD {
            let id = format!("{:064x}", (1 << 20) + pod * CONTAINERS_PER_POD + container);
            let record = json!({
                "id": id,
                "pod_id": pod_id,
                "spec": container_spec(pod, container),
                "image_id": "sha256:aa",
                "image": ImageConfig::default(),
                "slot": Slot::pmems().next(),
                "log_path": "/var/log/pods/x/0.log",
                "created_at_ns": created,
            });
            let status = json!({
                "stage": "exited", "started_at_ns": created, "finished_at_ns": created, "exit_code": 0,
                "reason": "Completed", "message": "", "user": { "uid": 0, "gid": 0, "groups": [] },
            });
            batch = batch.put(Table::ContainerRecords, &id, &record)?;
            batch = batch.put(Table::ContainerStatuses, &id, &status)?;
        }
    }
    store.commit(batch)?;
    Ok(())
}

fn pod_spec(pod: u32) -> PodSpec {
    PodSpec {
        name: format!("web-{pod}"),
        namespace: "default".into(),
        uid: format!("uid-{pod}"),
        labels: words(&[("io.kubernetes.pod.uid", "uid"), ("io.kubernetes.pod.name", "web"), ("app", "web")]),
        annotations: words(&[("kubernetes.io/config.seen", "now"), ("kubernetes.io/config.source", "api")]),
        ..PodSpec::default()
    }
}

fn container_spec(pod: u32, container: u32) -> ContainerSpec {
    ContainerSpec {
        name: format!("c{container}"),
        image: "sha256:aa".into(),
        command: vec!["sleep".into()],
        labels: words(&[
            ("io.kubernetes.container.name", "c"),
            ("io.kubernetes.pod.uid", &format!("uid-{pod}")),
        ]),
        annotations: words(&[
            ("io.kubernetes.container.hash", "12ab"),
            ("io.kubernetes.container.restartCount", "0"),
        ]),
        ..ContainerSpec::default()
    }
}

fn words<M: FromIterator<(String, String)>>(pairs: &[(&str, &str)]) -> M {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
