//! The network step: CNI and taps.

use runtime_net::PodNetwork;

use super::Ground;
use crate::PodError;
use crate::node::{Node, network_spec};
use crate::outside::Fault;
use crate::record::PodRecord;

/// Sets the pod's network up.
pub(super) async fn up(ground: &Ground) -> Result<PodNetwork, PodError> {
    let spec = network_spec(ground.id(), &ground.record.spec);
    let setup = ground.watch.time("network", ground.node.network.setup(&spec)).await;
    setup.map_err(|fault| PodError::internal("setting up the network").because(fault))
}

/// Takes it down. Idempotent, from the record alone.
pub(crate) async fn down(node: &Node, record: &PodRecord) -> Result<(), Fault> {
    node.network.teardown(&network_spec(&record.id, &record.spec)).await
}
