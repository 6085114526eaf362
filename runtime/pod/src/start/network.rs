//! The network step: CNI and taps.

use std::time::Duration;

use runtime_net::{PodNetwork, PodNetworkSpec};
use runtime_spec::{Bandwidth, PodSpec};

use super::context::StartContext;
use crate::blocking::within;
use crate::error::PodError;
use crate::node::Node;
use crate::record::PodRecord;

/// How long all plugins of a network may take together; each has a limit of its own. A cancelled call kills
/// its plugin, and may be repeated.
const NETWORKED_WITHIN: Duration = Duration::from_secs(150);

/// Sets the pod's network up.
pub(super) async fn up(context: &StartContext) -> Result<PodNetwork, PodError> {
    let spec = network_spec(context.id(), &context.record.spec);
    const DOING: &str = "setting up the network";
    let setup = async {
        let network = context.node.backends.network.setup(&spec).await;
        // A pooled namespace may have been taken.
        context.node.spares.networks().notify_one();
        network.map_err(|error| PodError::internal(DOING).because(error))
    };
    context.watch.time("network", within(NETWORKED_WITHIN, DOING, setup)).await
}

/// Takes the pod's network down. The call is idempotent and needs the record alone.
pub(super) async fn down(node: &Node, record: &PodRecord) -> Result<(), PodError> {
    const DOING: &str = "taking the network down";
    let spec = network_spec(&record.id, &record.spec);
    let teardown = async {
        let torn_down = node.backends.network.teardown(&spec).await;
        torn_down.map_err(|error| PodError::internal(DOING).because(error))
    };
    within(NETWORKED_WITHIN, DOING, teardown).await
}

/// The requested network of the pod.
fn network_spec(id: &str, spec: &PodSpec) -> PodNetworkSpec {
    PodNetworkSpec {
        pod_id: id.to_owned(),
        name: spec.name.clone(),
        namespace: spec.namespace.clone(),
        uid: spec.uid.clone(),
        port_mappings: spec.port_mappings.clone(),
        // Checked at the pod's request; a pod of an earlier version may have an invalid value.
        bandwidth: Bandwidth::of(&spec.annotations).unwrap_or_default(),
        dns: spec.dns.clone(),
        cgroup_parent: spec.cgroup_parent.clone(),
        annotations: spec.annotations.clone(),
    }
}
