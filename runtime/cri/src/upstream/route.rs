//! The route of each RPC, as a table by its path, without its message. Pure.

/// The package of the CRI served by every upstream. v1alpha2's messages are the same.
const V1: &str = "runtime.v1";
const V1ALPHA2: &str = "runtime.v1alpha2";

/// A call, from its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The RPC's name.
    pub(super) rpc: &'static str,
    pub(super) route: Route,
    /// The original path, for our own services.
    pub(super) path: String,
    /// The path for the upstream, in v1.
    pub(super) upstream_path: String,
}

/// How an RPC finds the answering side. Messages naming a pod or a container have its id in field 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// RunPodSandbox: by the handler.
    Run,
    /// By the pod's id.
    Pod,
    /// By the container's id.
    Container,
    /// CreateContainer: by the pod's id, and the image is pulled to its side first.
    Create,
    /// Both sides' items in one answer. A filter may select some.
    List(Listed),
    /// Both sides' items as a stream of answers, with the RPC listing them in one.
    Stream(Listed, &'static str),
    /// Both sides' events.
    Events,
    /// Status.
    Status,
    /// UpdateRuntimeConfig: for both sides.
    Configure,
    /// RuntimeConfig: the upstream's answer, unless the operator has decided.
    RuntimeConfig,
    ImageStatus,
    PullImage,
    RemoveImage,
    ImageFsInfo,
}

/// The answering side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    Ours,
    Upstream,
}

impl Side {
    pub(super) fn other(self) -> Side {
        match self {
            Side::Ours => Side::Upstream,
            Side::Upstream => Side::Ours,
        }
    }
}

/// The kind of a list's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Listed {
    Pods,
    Containers,
    Images,
    /// Usage. There is none while the upstream does not answer.
    Figures,
    /// Usage with labels from descriptors.
    Metrics,
    /// The descriptors of metrics.
    Descriptors,
    /// The answer to RuntimeConfig: no list, but remembered as one.
    RuntimeConfig,
    /// Handlers and features of the answer to Status, remembered likewise.
    Features,
}

impl Listed {
    /// Returns true if a list is read from the kernel and not from memory.
    pub(super) fn is_figures(self) -> bool {
        matches!(self, Listed::Figures | Listed::Metrics)
    }
}

/// The RPCs not answered by our own services alone.
const ROUTES: &[(&str, &str, Route)] = {
    use Route::*;
    &[
        ("RuntimeService", "RunPodSandbox", Run),
        ("RuntimeService", "StopPodSandbox", Pod),
        ("RuntimeService", "RemovePodSandbox", Pod),
        ("RuntimeService", "PodSandboxStatus", Pod),
        ("RuntimeService", "ListPodSandbox", List(Listed::Pods)),
        ("RuntimeService", "StreamPodSandboxes", Stream(Listed::Pods, "ListPodSandbox")),
        ("RuntimeService", "CreateContainer", Create),
        ("RuntimeService", "StartContainer", Container),
        ("RuntimeService", "StopContainer", Container),
        ("RuntimeService", "RemoveContainer", Container),
        ("RuntimeService", "ListContainers", List(Listed::Containers)),
        ("RuntimeService", "StreamContainers", Stream(Listed::Containers, "ListContainers")),
        ("RuntimeService", "ContainerStatus", Container),
        ("RuntimeService", "UpdateContainerResources", Container),
        ("RuntimeService", "ReopenContainerLog", Container),
        ("RuntimeService", "ExecSync", Container),
        ("RuntimeService", "Exec", Container),
        ("RuntimeService", "Attach", Container),
        ("RuntimeService", "PortForward", Pod),
        ("RuntimeService", "ContainerStats", Container),
        ("RuntimeService", "ListContainerStats", List(Listed::Figures)),
        ("RuntimeService", "StreamContainerStats", Stream(Listed::Figures, "ListContainerStats")),
        ("RuntimeService", "PodSandboxStats", Pod),
        ("RuntimeService", "ListPodSandboxStats", List(Listed::Figures)),
        ("RuntimeService", "StreamPodSandboxStats", Stream(Listed::Figures, "ListPodSandboxStats")),
        ("RuntimeService", "UpdateRuntimeConfig", Configure),
        ("RuntimeService", "RuntimeConfig", RuntimeConfig),
        ("RuntimeService", "Status", Status),
        ("RuntimeService", "CheckpointContainer", Container),
        ("RuntimeService", "GetContainerEvents", Events),
        ("RuntimeService", "ListMetricDescriptors", List(Listed::Descriptors)),
        ("RuntimeService", "ListPodSandboxMetrics", List(Listed::Metrics)),
        ("RuntimeService", "StreamPodSandboxMetrics", Stream(Listed::Metrics, "ListPodSandboxMetrics")),
        ("RuntimeService", "UpdatePodSandboxResources", Pod),
        ("ImageService", "ListImages", List(Listed::Images)),
        ("ImageService", "StreamImages", Stream(Listed::Images, "ListImages")),
        ("ImageService", "ImageStatus", ImageStatus),
        ("ImageService", "PullImage", PullImage),
        ("ImageService", "RemoveImage", RemoveImage),
        ("ImageService", "ImageFsInfo", ImageFsInfo),
    ]
};

/// The RPC answered by our own services alone: the node has one version.
#[cfg(test)]
const OURS: [&str; 1] = ["Version"];

impl Call {
    /// The call of this path. `None` if only our own services answer.
    pub(super) fn of_path(path: &str) -> Option<Call> {
        let (service, rpc) = path.strip_prefix('/')?.split_once('/')?;
        let (package, service) = service.rsplit_once('.')?;
        if package != V1 && package != V1ALPHA2 {
            return None;
        }
        let (service, rpc, route) = ROUTES.iter().find(|route| (route.0, route.1) == (service, rpc))?;
        Some(Call { rpc, route: *route, path: path.to_owned(), upstream_path: v1_path(service, rpc) })
    }

    /// The upstream's path of another RPC of the same service.
    pub(super) fn upstream_path_of(&self, rpc: &str) -> String {
        let service = self.upstream_path.rsplit_once('/').map_or("", |(service, _)| service);
        format!("{service}/{rpc}")
    }
}

/// The path of an RPC in v1.
pub(super) fn v1_path(service: &str, rpc: &str) -> String {
    format!("/{V1}.{service}/{rpc}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rpc_of_the_protocol_is_routed_or_ours() {
        let proto = include_str!("../../../../proto/cri/proto/api.proto");
        let rpcs: Vec<_> = proto
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("rpc ")?.split('(').next())
            .collect();
        assert!(rpcs.len() > 30);
        for rpc in &rpcs {
            let routed = ROUTES.iter().filter(|(_, known, _)| known == rpc).count();
            assert_eq!(routed + OURS.iter().filter(|known| *known == rpc).count(), 1, "{rpc}");
        }
        assert!(ROUTES.iter().all(|(_, rpc, _)| rpcs.contains(rpc)));
    }

    #[test]
    fn both_versions_lead_to_the_upstreams_v1() {
        for package in [V1, V1ALPHA2] {
            let path = format!("/{package}.RuntimeService/StopPodSandbox");
            let call = Call::of_path(&path).unwrap();
            assert_eq!(
                (call.rpc, call.route, call.path.as_str()),
                ("StopPodSandbox", Route::Pod, path.as_str())
            );
            assert_eq!(call.upstream_path, "/runtime.v1.RuntimeService/StopPodSandbox");
        }
        let call = Call::of_path("/runtime.v1.ImageService/StreamImages").unwrap();
        assert_eq!(call.upstream_path_of("ListImages"), "/runtime.v1.ImageService/ListImages");
        for path in [
            "",
            "/",
            "/x",
            "/runtime.v1.RuntimeService/Version",
            "/runtime.v2.RuntimeService/Status",
            "/grpc.Health/Check",
        ] {
            assert_eq!(Call::of_path(path), None, "{path}");
        }
    }
}
