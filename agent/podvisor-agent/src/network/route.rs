//! Addresses, routes and neighbours of a link, once it is up ([`crate::network::link`]).

use std::net::IpAddr;

use futures::StreamExt;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags};
use netlink_packet_route::neighbour::NeighbourState;
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteScope};
use nix::errno::Errno;
use proto_agent::agent::{Neighbour, Route};
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::{Handle, RouteMessageBuilder};

use crate::network::address;
use crate::network::error::NetworkError;
use crate::network::netlink::{Indices, index};

/// Adds one address, without the kernel's own route for its prefix: the request has the connected routes, and
/// a plugin may have removed one. IPv6 addresses are usable at once, without duplicate detection, because the
/// host has made sure of their uniqueness.
pub(super) async fn add_address(handle: &Handle, link: u32, text: &str) -> Result<(), NetworkError> {
    let (ip, prefix) = address::cidr(text)?;
    let mut request = handle.address().add(link, ip, prefix).replace();
    let nodad = if ip.is_ipv6() { AddressFlags::Nodad } else { AddressFlags::empty() };
    // The header has only the lower eight flags. The kernel prefers the attribute.
    let flags = AddressAttribute::Flags(AddressFlags::Noprefixroute | nodad);
    request.message_mut().attributes.push(flags);
    request.execute().await.map_err(failed("add the address", text))
}

/// Adds one route after others to the same destination, which may lead to other links. A route already there
/// is no error: in the namespace two may differ only in details that the request does not have.
pub(super) async fn add(handle: &Handle, indices: &Indices, route: &Route) -> Result<(), NetworkError> {
    let message = message(index(indices, &route.interface)?, route)?;
    match append(handle.clone(), message).await {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == -(Errno::EEXIST as i32) => Ok(()),
        added => added.map_err(failed("add the route to", &route.destination)),
    }
}

/// Sends the request of `ip route append`. The crate's own one adds the first route to a destination, or
/// replaces it.
async fn append(mut handle: Handle, message: RouteMessage) -> Result<(), rtnetlink::Error> {
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::NewRoute(message));
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_APPEND;
    let mut answers = handle.request(request)?;
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(error) = answer.payload {
            return Err(rtnetlink::Error::NetlinkError(error));
        }
    }
    Ok(())
}

fn message(link: u32, route: &Route) -> Result<RouteMessage, NetworkError> {
    let wrong = |what| NetworkError::Malformed { what, text: route.destination.clone() };
    let (destination, prefix) = address::cidr(&route.destination)?;
    let scope = u8::try_from(route.scope).map_err(|_| wrong("route scope"))?;
    let mut builder = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(destination, prefix)
        .map_err(|_| wrong("route destination"))?
        .output_interface(link)
        .scope(RouteScope::from(scope));
    if !route.gateway.is_empty() {
        builder = builder.gateway(address::ip(&route.gateway)?).map_err(|_| wrong("route gateway"))?;
    }
    if !route.source.is_empty() {
        builder = builder.pref_source(address::ip(&route.source)?).map_err(|_| wrong("route source"))?;
    }
    if route.metric != 0 {
        builder = builder.priority(route.metric);
    }
    let mut message = builder.build();
    if route.onlink {
        message.header.flags |= RouteFlags::Onlink;
    }
    let metrics =
        [(route.mtu, RouteMetric::Mtu(route.mtu)), (route.advmss, RouteMetric::Advmss(route.advmss))];
    let metrics: Vec<_> =
        metrics.into_iter().filter(|(value, _)| *value != 0).map(|(_, metric)| metric).collect();
    if !metrics.is_empty() {
        message.attributes.push(RouteAttribute::Metrics(metrics));
    }
    Ok(message)
}

/// Adds one permanent neighbour.
pub(super) async fn add_neighbour(
    handle: &Handle,
    indices: &Indices,
    neighbour: &Neighbour,
) -> Result<(), NetworkError> {
    let link = index(indices, &neighbour.interface)?;
    let mac = address::mac(&neighbour.mac)?;
    let request = handle
        .neighbours()
        .add(link, address::ip(&neighbour.address)?)
        .state(NeighbourState::Permanent)
        .link_layer_address(&mac)
        .replace();
    request.execute().await.map_err(failed("add the neighbour", &neighbour.address))
}

fn failed(what: &'static str, name: &str) -> impl FnOnce(rtnetlink::Error) -> NetworkError {
    let name = name.to_owned();
    move |source| NetworkError::Netlink { what, name, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> Route {
        Route { interface: "eth0".into(), destination: "0.0.0.0/0".into(), ..Default::default() }
    }

    #[test]
    fn a_route_carries_all_that_cni_said() {
        let route = Route {
            gateway: "169.254.1.1".into(),
            scope: 0,
            onlink: true,
            metric: 100,
            mtu: 1400,
            advmss: 1300,
            source: "10.0.0.5".into(),
            ..route()
        };
        let message = message(2, &route).unwrap();
        assert!(message.header.flags.contains(RouteFlags::Onlink));
        for attribute in [
            RouteAttribute::Oif(2),
            RouteAttribute::Priority(100),
            RouteAttribute::Metrics(vec![RouteMetric::Mtu(1400), RouteMetric::Advmss(1300)]),
        ] {
            assert!(message.attributes.contains(&attribute), "{attribute:?}");
        }
    }

    #[test]
    fn a_link_route_keeps_its_scope() {
        let route = Route { destination: "169.254.1.1/32".into(), scope: 253, ..route() };
        assert_eq!(message(2, &route).unwrap().header.scope, RouteScope::Link);
    }

    #[test]
    fn a_gateway_of_the_other_family_is_refused() {
        let route = Route { destination: "fd00::/64".into(), gateway: "10.0.0.1".into(), ..route() };
        assert!(message(2, &route).is_err());
    }
}
