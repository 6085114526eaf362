//! The guest's links, addresses, routes and neighbours, by rtnetlink, as CNI left them on the host.
//! It decides nothing: what cannot be applied as it stands is an error.

mod address;
mod link;
mod route;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use proto_agent::agent::ConfigurePodRequest;
use rtnetlink::Handle;

pub(crate) use link::loopback_up;

use crate::slots::{Class, SlotError, Slots};

/// Why the network could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("cannot open a netlink socket")]
    Socket(#[source] std::io::Error),
    #[error("cannot {what} {name}")]
    Netlink { what: &'static str, name: String, source: rtnetlink::Error },
    #[error("`{text}` is no valid {what}")]
    Malformed { what: &'static str, text: String },
    #[error("there is no interface {0}")]
    NoInterface(String),
    #[error(transparent)]
    Slot(#[from] SlotError),
}

/// Interface indices by name.
type Indices = HashMap<String, u32>;

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

/// Applies the request's interfaces, then routes, then neighbours. `devices` is what [`devices`] found.
pub(crate) async fn configure(request: &ConfigurePodRequest, devices: &[String]) -> Result<(), NetworkError> {
    if request.interfaces.is_empty() {
        return Ok(());
    }
    let handle = handle()?;
    let mut indices = Indices::from([("lo".to_owned(), link::LOOPBACK)]);
    for (interface, device) in request.interfaces.iter().zip(devices) {
        let index = link::configure(&handle, interface, device).await?;
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

fn handle() -> Result<Handle, NetworkError> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(NetworkError::Socket)?;
    // It ends when the last handle goes.
    tokio::spawn(connection);
    Ok(handle)
}

fn index(indices: &Indices, name: &str) -> Result<u32, NetworkError> {
    indices.get(name).copied().ok_or_else(|| NetworkError::NoInterface(name.to_owned()))
}
