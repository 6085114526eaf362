//! Converts the kernel's messages about addresses, routes and neighbours into plain values, and filters them
//! for the guest. Pure: no sockets.
//!
//! The guest rebuilds the interface exactly. Connected routes created by the kernel are therefore kept too: a
//! plugin may have removed or replaced one (ptp does), and the difference must be visible.

use std::{collections::BTreeMap, net::IpAddr};

use netlink_packet_route::{
    address::{AddressAttribute, AddressFlags, AddressMessage},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
        RouteType, RouteVia,
    },
};

use crate::{PodNeighbour, PodRoute};

/// `RT_TABLE_MAIN`, linux/rtnetlink.h.
const TABLE_MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// The guest's interfaces: kernel index to name.
pub(crate) type Names = BTreeMap<u32, String>;

/// Returns the address with its prefix length, or `None` if the guest's kernel adds it by itself.
pub(crate) fn address(message: &AddressMessage) -> Option<String> {
    let (mut local, mut peer) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => peer = Some(*ip),
            // By a router's advertisement, for a time. The guest makes the same one from its own.
            AddressAttribute::Flags(flags) if flags.contains(AddressFlags::Managetempaddr) => return None,
            _ => {}
        }
    }
    // On a point-to-point link Address is the other end; Local is absent for IPv6.
    let ip = local.or(peer)?;
    (!link_local(ip)).then(|| format!("{ip}/{}", message.header.prefix_len))
}

/// Returns the route, or `None` if the guest should not have it.
pub(crate) fn route(message: &RouteMessage, names: &Names) -> Option<PodRoute> {
    let header = &message.header;
    // A route by type of service would be one for all packets in the guest.
    if header.kind != RouteType::Unicast || header.protocol == RouteProtocol::Ra || header.tos != 0 {
        return None;
    }
    let mut found = Found { table: u32::from(header.table), ..Found::default() };
    message.attributes.iter().for_each(|attribute| found.take(attribute, names));
    if found.table != TABLE_MAIN {
        return None;
    }
    let v6 = u8::from(header.address_family) != nix::libc::AF_INET as u8;
    // The prefix of a router's advertisement. In the guest it would have no end.
    if v6 && header.protocol == RouteProtocol::Kernel && found.expires {
        return None;
    }
    let any = if v6 { "::" } else { "0.0.0.0" };
    if found.destination.is_some_and(|ip| link_local(ip) || ip.is_multicast()) {
        return None;
    }
    let destination = found.destination.map_or_else(|| any.to_owned(), |ip| ip.to_string());
    Some(PodRoute {
        interface: names.get(&found.link?)?.clone(),
        destination: format!("{destination}/{}", header.destination_prefix_length),
        gateway: found.gateway.map_or_else(String::new, |ip| ip.to_string()),
        scope: u32::from(u8::from(header.scope)),
        onlink: found.onlink || header.flags.contains(RouteFlags::Onlink),
        metric: found.metric,
        mtu: found.mtu,
        advmss: found.advmss,
        source: found.source.map_or_else(String::new, |ip| ip.to_string()),
    })
}

/// Sorts the routes for adding them one by one: a gateway must be reachable first.
pub(crate) fn in_order(routes: &mut [PodRoute]) {
    routes.sort_by_key(|route| !route.gateway.is_empty());
}

/// Returns the neighbour if it is permanent.
pub(crate) fn neighbour(message: &NeighbourMessage, names: &Names) -> Option<PodNeighbour> {
    if message.header.state != NeighbourState::Permanent {
        return None;
    }
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => address = Some(IpAddr::V4(*ip)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => address = Some(IpAddr::V6(*ip)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
            _ => {}
        }
    }
    let address = address.filter(|ip| !ip.is_multicast())?;
    Some(PodNeighbour { interface: names.get(&message.header.ifindex)?.clone(), address, mac: mac? })
}

/// fe80::/10 is left to the guest's kernel. IPv4's 169.254.0.0/16 is not: plugins use it for gateways.
fn link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[derive(Default)]
struct Found {
    table: u32,
    link: Option<u32>,
    destination: Option<IpAddr>,
    gateway: Option<IpAddr>,
    source: Option<IpAddr>,
    metric: u32,
    mtu: u32,
    advmss: u32,
    onlink: bool,
    expires: bool,
}

impl Found {
    fn take(&mut self, attribute: &RouteAttribute, names: &Names) {
        match attribute {
            RouteAttribute::Table(table) => self.table = *table,
            RouteAttribute::Oif(index) => self.link = Some(*index),
            RouteAttribute::Destination(to) => self.destination = ip(to),
            RouteAttribute::Gateway(gateway) => self.gateway = ip(gateway),
            RouteAttribute::Via(RouteVia::Inet(gateway)) => self.gateway = Some(IpAddr::V4(*gateway)),
            RouteAttribute::Via(RouteVia::Inet6(gateway)) => self.gateway = Some(IpAddr::V6(*gateway)),
            RouteAttribute::PrefSource(source) => self.source = ip(source),
            RouteAttribute::Priority(metric) => self.metric = *metric,
            RouteAttribute::CacheInfo(info) => self.expires = info.expires != 0,
            RouteAttribute::Metrics(metrics) => {
                for metric in metrics {
                    match metric {
                        RouteMetric::Mtu(mtu) => self.mtu = *mtu,
                        RouteMetric::Advmss(advmss) => self.advmss = *advmss,
                        _ => {}
                    }
                }
            }
            // The guest gets one next hop: the first on one of its links. It keeps the pod reachable,
            // unbalanced. `settings` reports the others.
            RouteAttribute::MultiPath(hops) => {
                if let Some(hop) = hops.iter().find(|hop| names.contains_key(&hop.interface_index)) {
                    self.link = Some(hop.interface_index);
                    let onlink = netlink_packet_route::route::RouteNextHopFlags::Onlink;
                    self.onlink = hop.flags.contains(onlink);
                    hop.attributes.iter().for_each(|attribute| self.take(attribute, names));
                }
            }
            _ => {}
        }
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some(IpAddr::V4(*ip)),
        RouteAddress::Inet6(ip) => Some(IpAddr::V6(*ip)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::{
        AddressFamily,
        route::{RouteCacheInfo, RouteNextHop, RouteScope},
    };

    use super::*;

    fn names() -> Names {
        Names::from([(3, "eth0".to_owned())])
    }

    fn message(family: AddressFamily, prefix: u8, attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        message.header.destination_prefix_length = prefix;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.kind = RouteType::Unicast;
        message.attributes = attributes;
        message
    }

    fn v4(text: &str) -> RouteAddress {
        RouteAddress::Inet(text.parse().unwrap())
    }

    #[test]
    fn a_default_route_through_an_onlink_gateway_keeps_everything() {
        let mut message = message(
            AddressFamily::Inet,
            0,
            vec![
                RouteAttribute::Oif(3),
                RouteAttribute::Gateway(v4("169.254.1.1")),
                RouteAttribute::PrefSource(v4("10.0.0.5")),
                RouteAttribute::Priority(50),
                RouteAttribute::Metrics(vec![RouteMetric::Mtu(1400), RouteMetric::Advmss(1300)]),
            ],
        );
        message.header.flags = RouteFlags::Onlink;
        let expected = PodRoute {
            interface: "eth0".into(),
            destination: "0.0.0.0/0".into(),
            gateway: "169.254.1.1".into(),
            scope: 0,
            onlink: true,
            metric: 50,
            mtu: 1400,
            advmss: 1300,
            source: "10.0.0.5".into(),
        };
        assert_eq!(route(&message, &names()), Some(expected));
    }

    #[test]
    fn a_default_route_of_ipv6_is_colon_colon() {
        let message = message(AddressFamily::Inet6, 0, vec![RouteAttribute::Oif(3)]);
        assert_eq!(route(&message, &names()).unwrap().destination, "::/0");
    }

    #[test]
    fn routes_of_other_tables_links_kinds_and_services_are_left_out() {
        let good = message(
            AddressFamily::Inet,
            8,
            vec![RouteAttribute::Oif(3), RouteAttribute::Destination(v4("10.0.0.0"))],
        );
        assert!(route(&good, &names()).is_some());
        let mut other_table = good.clone();
        other_table.attributes.push(RouteAttribute::Table(100));
        let mut local = good.clone();
        local.header.kind = RouteType::Local;
        let mut advertised = good.clone();
        advertised.header.protocol = RouteProtocol::Ra;
        let mut other_link = good.clone();
        other_link.attributes[0] = RouteAttribute::Oif(9);
        let mut by_service = good.clone();
        by_service.header.tos = 16;
        for message in [other_table, local, advertised, other_link, by_service] {
            assert_eq!(route(&message, &names()), None, "{message:?}");
        }
    }

    #[test]
    fn of_several_next_hops_the_first_on_a_link_of_the_guest_is_taken() {
        let hop = |link, gateway| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = link;
            hop.attributes = vec![RouteAttribute::Gateway(v4(gateway))];
            hop
        };
        let hops = vec![hop(9, "10.9.0.1"), hop(3, "10.3.0.1"), hop(3, "10.3.0.2")];
        let several = message(AddressFamily::Inet, 0, vec![RouteAttribute::MultiPath(hops)]);
        let found = route(&several, &names()).unwrap();
        assert_eq!((found.interface.as_str(), found.gateway.as_str()), ("eth0", "10.3.0.1"));
        let elsewhere =
            message(AddressFamily::Inet, 0, vec![RouteAttribute::MultiPath(vec![hop(9, "10.9.0.1")])]);
        assert_eq!(route(&elsewhere, &names()), None);
    }

    #[test]
    fn link_local_and_multicast_routes_of_ipv6_are_left_out() {
        for to in ["fe80::", "ff00::"] {
            let to = RouteAddress::Inet6(to.parse().unwrap());
            let message = message(
                AddressFamily::Inet6,
                64,
                vec![RouteAttribute::Oif(3), RouteAttribute::Destination(to)],
            );
            assert_eq!(route(&message, &names()), None);
        }
    }

    #[test]
    fn what_a_router_has_advertised_is_left_to_the_guest() {
        let prefix = RouteAddress::Inet6("2001:db8::".parse().unwrap());
        let attributes = vec![RouteAttribute::Oif(3), RouteAttribute::Destination(prefix)];
        let mut connected = message(AddressFamily::Inet6, 64, attributes);
        connected.header.protocol = RouteProtocol::Kernel;
        let mut info = RouteCacheInfo::parse(&[0; 32]).unwrap();
        connected.attributes.push(RouteAttribute::CacheInfo(info));
        assert!(route(&connected, &names()).is_some(), "of an address that stays");
        info.expires = 59_900;
        connected.attributes.push(RouteAttribute::CacheInfo(info));
        assert_eq!(route(&connected, &names()), None);
        let mut made = AddressMessage::default();
        made.attributes = vec![AddressAttribute::Address("2001:db8::5".parse().unwrap())];
        assert!(address(&made).is_some());
        made.attributes.push(AddressAttribute::Flags(AddressFlags::Managetempaddr));
        assert_eq!(address(&made), None);
    }

    #[test]
    fn link_routes_come_before_those_that_need_them() {
        let to = |destination: &str, gateway: &str| PodRoute {
            destination: destination.into(),
            gateway: gateway.into(),
            ..PodRoute::default()
        };
        let mut routes = [to("0.0.0.0/0", "10.1.2.1"), to("10.1.2.0/24", "10.1.2.1"), to("10.1.2.1/32", "")];
        in_order(&mut routes);
        assert_eq!(routes[0].destination, "10.1.2.1/32");
    }

    #[test]
    fn an_address_is_the_near_end_and_link_local_is_left_to_the_guest() {
        let mut message = AddressMessage::default();
        message.header.prefix_len = 32;
        message.attributes = vec![
            AddressAttribute::Address("10.0.0.1".parse().unwrap()),
            AddressAttribute::Local("10.0.0.2".parse().unwrap()),
        ];
        assert_eq!(address(&message).as_deref(), Some("10.0.0.2/32"));
        message.attributes = vec![AddressAttribute::Address("fe80::1".parse().unwrap())];
        assert_eq!(address(&message), None);
    }

    #[test]
    fn only_neighbours_set_by_hand_are_kept() {
        let mut message = NeighbourMessage::default();
        message.header.ifindex = 3;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::Destination(NeighbourAddress::Inet("169.254.1.1".parse().unwrap())),
            NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 1]),
        ];
        let found = neighbour(&message, &names()).unwrap();
        assert_eq!(found.mac, [2, 0, 0, 0, 0, 1]);
        message.header.state = NeighbourState::Stale;
        assert_eq!(neighbour(&message, &names()), None);
    }

    #[test]
    fn scope_is_the_number_of_rtnetlink() {
        let mut message = message(AddressFamily::Inet, 0, vec![RouteAttribute::Oif(3)]);
        message.header.scope = RouteScope::Link;
        assert_eq!(route(&message, &names()).unwrap().scope, 253);
    }
}
