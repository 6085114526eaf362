//! RunPodSandbox: to the side of the pod's handler.

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;
use tonic::{Request, Response, Status};

use super::route::{Call, Side};
use super::sides::Sides;
use super::{UnnamedPods, Upstream, fields};
use crate::subject;

/// The number of RunPodSandboxRequest's `runtime_handler` (api.proto).
const RUNTIME_HANDLER: u32 = 2;

/// A namespace available in a VM: the guest's own.
const PIDS: &str = "PID namespace";

impl Sides {
    pub(super) async fn run(&self, call: &Call, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let message = request.get_ref();
        let name = fields::text(message, RUNTIME_HANDLER).map_err(Status::invalid_argument)?;
        // Our own services refuse an undecodable message.
        let decoded = v1::RunPodSandboxRequest::decode(message.clone()).unwrap_or_default();
        let shared = shared(&decoded);
        if self.upstream.takes(name, !shared.is_empty()) {
            subject::pod_elsewhere(&decoded);
            return self.call(Side::Upstream, call, request).await;
        }
        if shared.iter().any(|shared| *shared != PIDS) {
            return Err(self.upstream.refusal(name, &shared));
        }
        self.call(Side::Ours, call, request).await
    }
}

impl Upstream {
    /// Returns true if a pod of this handler goes to the upstream. `shares` is true if the pod requests a
    /// namespace of the node.
    pub(super) fn takes(&self, handler: &str, shares: bool) -> bool {
        match self.unnamed_pods {
            _ if !handler.is_empty() => self.handlers.iter().any(|name| name == handler),
            UnnamedPods::None => false,
            UnnamedPods::OfTheNode => shares,
            UnnamedPods::All => true,
        }
    }

    /// The error for a pod requesting a namespace of the node in a VM.
    fn refusal(&self, name: &str, shared: &[&str]) -> Status {
        let handler =
            if name.is_empty() { "the default handler".to_owned() } else { format!("handler {name:?}") };
        let others: Vec<_> = self.handlers.iter().map(|name| format!("{name:?}")).collect();
        Status::invalid_argument(format!(
            "{handler} gives each pod a VM, and a VM cannot share the node's {}: name a RuntimeClass with the handler {}",
            shared.join(" and "),
            others.join(" or ")
        ))
    }
}

/// The namespaces of the node requested by the pod, by name.
fn shared(run: &v1::RunPodSandboxRequest) -> Vec<&'static str> {
    let linux = run.config.as_ref().and_then(|config| config.linux.as_ref());
    let context = linux.and_then(|linux| linux.security_context.as_ref());
    let Some(options) = context.and_then(|context| context.namespace_options.as_ref()) else {
        return Vec::new();
    };
    let node = v1::NamespaceMode::Node;
    [("network namespace", options.network()), (PIDS, options.pid()), ("IPC namespace", options.ipc())]
        .into_iter()
        .filter_map(|(name, mode)| (mode == node).then_some(name))
        .collect()
}
