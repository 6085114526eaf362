//! Every RPC of the API: its normal case, its repeat, an unknown id, and the wrong state; as tables, compared
//! with the API's own list, so none is forgotten.

use proto_cri::v1::*;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};
use tonic::{Code, Status};

/// Every RPC with an unknown id, or without an id if it takes none.
const UNKNOWN: &[(&str, Code)] = &[
    ("Version", Code::Ok),
    ("Status", Code::Ok),
    ("RuntimeConfig", Code::Ok),
    ("UpdateRuntimeConfig", Code::Ok),
    ("RunPodSandbox", Code::InvalidArgument),
    ("StopPodSandbox", Code::Ok),
    ("RemovePodSandbox", Code::Ok),
    ("PodSandboxStatus", Code::NotFound),
    ("ListPodSandbox", Code::Ok),
    ("StreamPodSandboxes", Code::Ok),
    ("CreateContainer", Code::NotFound),
    ("StartContainer", Code::NotFound),
    ("StopContainer", Code::Ok),
    ("RemoveContainer", Code::Ok),
    ("ListContainers", Code::Ok),
    ("StreamContainers", Code::Ok),
    ("ContainerStatus", Code::NotFound),
    ("UpdateContainerResources", Code::NotFound),
    ("UpdatePodSandboxResources", Code::NotFound),
    ("ReopenContainerLog", Code::NotFound),
    ("ExecSync", Code::NotFound),
    ("Exec", Code::NotFound),
    ("Attach", Code::NotFound),
    ("PortForward", Code::NotFound),
    ("ContainerStats", Code::NotFound),
    ("ListContainerStats", Code::Ok),
    ("StreamContainerStats", Code::Ok),
    ("PodSandboxStats", Code::NotFound),
    ("ListPodSandboxStats", Code::Ok),
    ("StreamPodSandboxStats", Code::Ok),
    ("ListMetricDescriptors", Code::Ok),
    ("ListPodSandboxMetrics", Code::Ok),
    ("StreamPodSandboxMetrics", Code::Ok),
    ("GetContainerEvents", Code::Ok),
    ("CheckpointContainer", Code::Unimplemented),
    ("ListImages", Code::Ok),
    ("StreamImages", Code::Ok),
    ("ImageStatus", Code::Ok),
    ("PullImage", Code::NotFound),
    ("RemoveImage", Code::Ok),
    ("ImageFsInfo", Code::Ok),
];

/// One pod's life, call by call, with each call's repeat and with calls too early or too late.
const LIFE: &[(&str, Code)] = &[
    ("PullImage", Code::Ok),
    ("PullImage", Code::Ok),
    ("ImageStatus", Code::Ok),
    ("RunPodSandbox", Code::Ok),
    ("RunPodSandbox", Code::Ok),
    ("PodSandboxStatus", Code::Ok),
    ("PodSandboxStats", Code::Ok),
    ("PodSandboxStats", Code::Ok),
    ("ListPodSandboxStats", Code::Ok),
    ("ListPodSandboxMetrics", Code::Ok),
    ("UpdatePodSandboxResources", Code::Ok),
    ("UpdatePodSandboxResources", Code::Ok),
    ("PortForward", Code::Ok),
    ("CreateContainer", Code::Ok),
    ("CreateContainer", Code::AlreadyExists),
    ("ContainerStatus", Code::Ok),
    ("UpdateContainerResources", Code::Ok),
    ("ReopenContainerLog", Code::Ok),
    ("ExecSync", Code::FailedPrecondition),
    ("Exec", Code::FailedPrecondition),
    ("Attach", Code::FailedPrecondition),
    ("StartContainer", Code::Ok),
    ("StartContainer", Code::FailedPrecondition),
    ("ContainerStats", Code::Ok),
    ("ContainerStats", Code::Ok),
    ("ListContainerStats", Code::Ok),
    ("StreamContainerStats", Code::Ok),
    ("UpdateContainerResources", Code::Ok),
    ("UpdateContainerResources", Code::Ok),
    ("ReopenContainerLog", Code::Ok),
    ("ReopenContainerLog", Code::Ok),
    ("ExecSync", Code::Ok),
    ("ExecSync", Code::Ok),
    ("Exec", Code::Ok),
    ("Exec", Code::Ok),
    ("Attach", Code::Ok),
    ("StopContainer", Code::Ok),
    ("StopContainer", Code::Ok),
    ("ContainerStatus", Code::Ok),
    ("StartContainer", Code::FailedPrecondition),
    ("ContainerStats", Code::FailedPrecondition),
    ("ExecSync", Code::FailedPrecondition),
    ("Exec", Code::FailedPrecondition),
    ("Attach", Code::FailedPrecondition),
    ("ReopenContainerLog", Code::FailedPrecondition),
    ("RemoveContainer", Code::Ok),
    ("RemoveContainer", Code::Ok),
    ("ContainerStatus", Code::NotFound),
    // The name is free again; this one is started, and goes with its pod.
    ("CreateContainer", Code::Ok),
    ("StartContainer", Code::Ok),
    ("StopPodSandbox", Code::Ok),
    ("StopPodSandbox", Code::Ok),
    ("ContainerStatus", Code::Ok),
    ("RunPodSandbox", Code::AlreadyExists),
    ("CreateContainer", Code::FailedPrecondition),
    ("StartContainer", Code::FailedPrecondition),
    ("PortForward", Code::FailedPrecondition),
    ("PodSandboxStatus", Code::Ok),
    ("RemovePodSandbox", Code::Ok),
    ("RemovePodSandbox", Code::Ok),
    ("PodSandboxStatus", Code::NotFound),
    ("ContainerStatus", Code::NotFound),
    ("RunPodSandbox", Code::Ok),
    ("RemovePodSandbox", Code::Ok),
    ("RemoveImage", Code::Ok),
    ("RemoveImage", Code::Ok),
];

/// Length of a whole id.
const ID_DIGITS: usize = 64;

/// The client and the ids for the calls.
struct Caller {
    client: Client,
    image: String,
    pod: String,
    container: String,
    config: PodSandboxConfig,
    /// Digits of the ids in calls.
    digits: usize,
}

/// Calls, and drops the answer.
macro_rules! plain {
    ($client:expr, $call:ident, $request:expr) => {
        $client.$call($request).await.map(drop)
    };
}

impl Caller {
    async fn call(&mut self, rpc: &str) -> Result<(), Status> {
        let (pod, container) = (self.pod.clone(), self.container.clone());
        match rpc {
            "RunPodSandbox" => {
                self.pod = self.client.run_pod(&self.config).await?;
                self.pod.truncate(self.digits);
                Ok(())
            }
            "CreateContainer" => {
                let config = spec::container("main", &self.image, &["sleep", "3600"]);
                self.container = self.client.create(&pod, config).await?;
                self.container.truncate(self.digits);
                Ok(())
            }
            "StartContainer" => self.client.start(&container).await,
            "StopContainer" => self.client.stop(&container, 0).await,
            "RemoveContainer" => self.client.remove(&container).await,
            "ContainerStatus" => self.client.status(&container).await.map(drop),
            "ExecSync" => self.client.exec(&container, &["true"], 60).await.map(drop),
            "StopPodSandbox" => self.client.stop_pod(&pod).await,
            "RemovePodSandbox" => self.client.remove_pod(&pod).await,
            "PodSandboxStatus" => self.client.pod_status(&pod).await.map(drop),
            "PullImage" => self.client.pull(&self.image).await.map(drop),
            "ImageStatus" | "RemoveImage" | "ListImages" | "StreamImages" | "ImageFsInfo" => {
                self.of_images(rpc).await
            }
            _ if rpc.contains("Stats") || rpc.contains("Metric") => self.of_stats(rpc).await,
            _ => self.of_runtime(rpc).await,
        }
    }

    async fn of_images(&mut self, rpc: &str) -> Result<(), Status> {
        let image = Some(ImageSpec { image: self.image.clone(), ..Default::default() });
        let images = &mut self.client.images;
        match rpc {
            "ImageStatus" => plain!(images, image_status, ImageStatusRequest { image, verbose: true }),
            "RemoveImage" => plain!(images, remove_image, RemoveImageRequest { image }),
            "ListImages" => plain!(images, list_images, ListImagesRequest::default()),
            "StreamImages" => plain!(images, stream_images, StreamImagesRequest::default()),
            _ => plain!(images, image_fs_info, ImageFsInfoRequest {}),
        }
    }

    async fn of_stats(&mut self, rpc: &str) -> Result<(), Status> {
        let (container_id, pod_sandbox_id) = (self.container.clone(), self.pod.clone());
        let runtime = &mut self.client.runtime;
        match rpc {
            "ContainerStats" => plain!(runtime, container_stats, ContainerStatsRequest { container_id }),
            "ListContainerStats" => {
                plain!(runtime, list_container_stats, ListContainerStatsRequest::default())
            }
            "StreamContainerStats" => {
                plain!(runtime, stream_container_stats, StreamContainerStatsRequest::default())
            }
            "PodSandboxStats" => {
                plain!(runtime, pod_sandbox_stats, PodSandboxStatsRequest { pod_sandbox_id })
            }
            "ListPodSandboxStats" => {
                plain!(runtime, list_pod_sandbox_stats, ListPodSandboxStatsRequest::default())
            }
            "StreamPodSandboxStats" => {
                plain!(runtime, stream_pod_sandbox_stats, StreamPodSandboxStatsRequest::default())
            }
            "ListMetricDescriptors" => {
                plain!(runtime, list_metric_descriptors, ListMetricDescriptorsRequest {})
            }
            "ListPodSandboxMetrics" => {
                plain!(runtime, list_pod_sandbox_metrics, ListPodSandboxMetricsRequest {})
            }
            _ => plain!(runtime, stream_pod_sandbox_metrics, StreamPodSandboxMetricsRequest {}),
        }
    }

    async fn of_runtime(&mut self, rpc: &str) -> Result<(), Status> {
        let (container_id, pod_sandbox_id) = (self.container.clone(), self.pod.clone());
        let runtime = &mut self.client.runtime;
        match rpc {
            "Version" => plain!(runtime, version, VersionRequest::default()),
            "Status" => plain!(runtime, status, StatusRequest { verbose: true }),
            "RuntimeConfig" => plain!(runtime, runtime_config, RuntimeConfigRequest {}),
            "UpdateRuntimeConfig" => {
                plain!(runtime, update_runtime_config, UpdateRuntimeConfigRequest::default())
            }
            "ListPodSandbox" => plain!(runtime, list_pod_sandbox, ListPodSandboxRequest::default()),
            "StreamPodSandboxes" => {
                plain!(runtime, stream_pod_sandboxes, StreamPodSandboxesRequest::default())
            }
            "ListContainers" => plain!(runtime, list_containers, ListContainersRequest::default()),
            "StreamContainers" => plain!(runtime, stream_containers, StreamContainersRequest::default()),
            "UpdateContainerResources" => {
                let request = UpdateContainerResourcesRequest { container_id, ..Default::default() };
                plain!(runtime, update_container_resources, request)
            }
            "UpdatePodSandboxResources" => {
                let request = UpdatePodSandboxResourcesRequest { pod_sandbox_id, ..Default::default() };
                plain!(runtime, update_pod_sandbox_resources, request)
            }
            "ReopenContainerLog" => {
                plain!(runtime, reopen_container_log, ReopenContainerLogRequest { container_id })
            }
            "Exec" => {
                let cmd = vec!["true".to_owned()];
                plain!(runtime, exec, ExecRequest { container_id, cmd, stdout: true, ..Default::default() })
            }
            "Attach" => {
                plain!(runtime, attach, AttachRequest { container_id, stdout: true, ..Default::default() })
            }
            "PortForward" => {
                plain!(runtime, port_forward, PortForwardRequest { pod_sandbox_id, port: vec![80] })
            }
            "GetContainerEvents" => plain!(runtime, get_container_events, GetEventsRequest {}),
            "CheckpointContainer" => {
                let request = CheckpointContainerRequest { container_id, ..Default::default() };
                plain!(runtime, checkpoint_container, request)
            }
            other => panic!("{other} has no call here"),
        }
    }
}

/// Returns the error in an answer, if any.
fn wrong(rpc: &str, answer: &Result<(), Status>, expected: Code) -> Option<String> {
    let found = answer.as_ref().map_or_else(Status::code, |()| Code::Ok);
    (found != expected).then(|| format!("{rpc}: {answer:?} instead of {expected:?}"))
}

#[test]
fn the_table_has_every_rpc_of_the_api_once() {
    let api = include_str!("../../../../proto/cri/proto/api.proto");
    let rpcs = api.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
    let mut rpcs: Vec<_> = rpcs.collect();
    let mut table: Vec<_> = UNKNOWN.iter().map(|(rpc, _)| *rpc).collect();
    rpcs.sort_unstable();
    table.sort_unstable();
    assert_eq!(table, rpcs);
}

#[test]
fn every_rpc_about_one_pod_or_container_is_called_twice_in_its_life() {
    for (rpc, code) in UNKNOWN.iter().filter(|(_, code)| *code == Code::NotFound) {
        assert!(LIFE.iter().filter(|(called, _)| called == rpc).count() >= 2, "{rpc} {code:?}");
    }
}

#[tokio::test]
async fn every_rpc_takes_an_id_that_is_not_there_as_the_api_says() {
    let Some(host) = Host::start().await else { return };
    // Not a name: the error is a sandbox without a name.
    let mut caller = Caller {
        client: host.client(),
        image: host.image("podvisor/nothing"),
        pod: "none".into(),
        container: "none".into(),
        config: PodSandboxConfig::default(),
        digits: ID_DIGITS,
    };
    let mut found = Vec::new();
    for (rpc, expected) in UNKNOWN {
        let answer = caller.call(rpc).await;
        found.extend(wrong(rpc, &answer, *expected));
    }
    assert_eq!(found, Vec::<String>::new());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn every_rpc_of_a_pods_life_answers_for_its_state_and_its_repeat() {
    live(ID_DIGITS).await;
}

#[tokio::test]
async fn every_rpc_of_a_pods_life_takes_the_beginning_of_an_id() {
    live(13).await;
}

/// Makes the calls of [`LIFE`] with ids cut to this length.
async fn live(digits: usize) {
    let Some(host) = Host::start().await else { return };
    let mut caller = Caller {
        client: host.client(),
        image: host.busybox(),
        pod: String::new(),
        container: String::new(),
        config: spec::pod("calls", host.dir()),
        digits,
    };
    let mut found = Vec::new();
    for (step, (rpc, expected)) in LIFE.iter().enumerate() {
        let answer = caller.call(rpc).await;
        found.extend(wrong(rpc, &answer, *expected).map(|wrong| format!("step {step}, {wrong}")));
    }
    assert_eq!(found, Vec::<String>::new());
    host.stop().await.unwrap();
}
