//! The guest's links, addresses, routes and neighbours, set by rtnetlink to the result of CNI on the host,
//! and the settings made there by plugins. This module makes no decisions. A request is applied unchanged or
//! fails. A setting refused by the kernel is reported.

mod address;
mod error;
mod link;
mod namespace;
mod netlink;
mod nft;
mod nft_process;
mod route;
mod settings;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;

use proto_agent::agent::ConfigurePodRequest;

pub(crate) use error::NetworkError;
pub(crate) use link::loopback_up;
pub(crate) use namespace::{enter_namespace, make_namespace};
pub(crate) use nft_process::{ARGUMENT as NFT_ARGUMENT, run as make_nft_table_in_user_namespace};
pub(crate) use settings::replay as replay_settings;

use crate::network::netlink::{Indices, handle};
use crate::slots::{Class, Slots};

/// The kernel's names of the links in the interfaces' slots, in their order.
pub(crate) async fn devices(request: &ConfigurePodRequest) -> Result<Vec<String>, NetworkError> {
    let mut devices = Vec::new();
    for interface in &request.interfaces {
        devices.push(Slots::default().device(interface.slot, Class::Net).await?);
    }
    Ok(devices)
}

/// Moves these links to another network namespace.
pub(crate) async fn move_to(namespace: BorrowedFd<'_>, devices: &[String]) -> Result<(), NetworkError> {
    let handle = handle()?;
    for device in devices {
        link::move_to(&handle, device, namespace).await?;
    }
    Ok(())
}

/// Applies the request's interfaces, then routes, then neighbours. `devices` is the result of [`devices`].
pub(crate) async fn configure(request: &ConfigurePodRequest, devices: &[String]) -> Result<(), NetworkError> {
    if request.interfaces.is_empty() {
        return Ok(());
    }
    let handle = handle()?;
    let mut indices = Indices::from([("lo".to_owned(), link::LOOPBACK)]);
    let links = link::rename(&handle, devices, &request.interfaces).await?;
    for (interface, index) in request.interfaces.iter().zip(links) {
        link::configure(&handle, interface, index).await?;
        indices.insert(interface.name.clone(), index);
        for text in &interface.addresses {
            route::add_address(&handle, index, text).await?;
        }
    }
    // A gateway must be reachable before a route goes through it.
    let (direct, through): (Vec<_>, Vec<_>) =
        request.routes.iter().partition(|route| route.gateway.is_empty());
    for route in direct.into_iter().chain(through) {
        route::add(&handle, &indices, route).await?;
    }
    for neighbour in &request.neighbours {
        route::add_neighbour(&handle, &indices, neighbour).await?;
    }
    Ok(())
}
