//! The network step: CNI and taps.

use runtime_net::{PodNetwork, PodNetworkSpec};
use runtime_spec::{Bandwidth, PodSpec};

use super::context::StartContext;
use crate::error::PodError;
use crate::node::Node;
use crate::record::PodRecord;

/// Sets the pod's network up.
pub(super) async fn up(context: &StartContext) -> Result<PodNetwork, PodError> {
    let spec = network_spec(context.id(), &context.record.spec);
    let setup = context.watch.time("network", context.node.backends.network.setup(&spec)).await;
    setup.map_err(|error| PodError::internal("setting up the network").because(error))
}

/// Takes the pod's network down. The call is idempotent and needs the record alone.
pub(super) async fn down(node: &Node, record: &PodRecord) -> Result<(), PodError> {
    let torn_down = node.backends.network.teardown(&network_spec(&record.id, &record.spec)).await;
    torn_down.map_err(|error| PodError::internal("taking the network down").because(error))
}

/// The network that the pod asks for.
fn network_spec(id: &str, spec: &PodSpec) -> PodNetworkSpec {
    PodNetworkSpec {
        pod_id: id.to_owned(),
        name: spec.name.clone(),
        namespace: spec.namespace.clone(),
        uid: spec.uid.clone(),
        port_mappings: spec.port_mappings.clone(),
        // Checked when the pod came; a pod of an earlier version may have what is none.
        bandwidth: Bandwidth::of(&spec.annotations).unwrap_or_default(),
    }
}
