//! The network step: CNI and taps.

use runtime_net::{PodNetwork, PodNetworkSpec};
use runtime_spec::PodSpec;

use super::context::StartContext;
use crate::backend::BackendError;
use crate::error::PodError;
use crate::node::Node;
use crate::record::PodRecord;

/// Sets the pod's network up.
pub(super) async fn up(context: &StartContext) -> Result<PodNetwork, PodError> {
    let spec = network_spec(context.id(), &context.record.spec);
    let setup = context.watch.time("network", context.node.backends.network.setup(&spec)).await;
    setup.map_err(|error| PodError::internal("setting up the network").because(error))
}

/// Takes it down. Idempotent, from the record alone.
pub(crate) async fn down(node: &Node, record: &PodRecord) -> Result<(), BackendError> {
    node.backends.network.teardown(&network_spec(&record.id, &record.spec)).await
}

/// What the pod asks of its network.
fn network_spec(id: &str, spec: &PodSpec) -> PodNetworkSpec {
    PodNetworkSpec {
        pod_id: id.to_owned(),
        name: spec.name.clone(),
        namespace: spec.namespace.clone(),
        uid: spec.uid.clone(),
        port_mappings: spec.port_mappings.clone(),
        ..PodNetworkSpec::default()
    }
}
