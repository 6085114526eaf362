//! Joins the interfaces in the pod's namespace to taps, one each, and reads their addresses, routes and
//! neighbours for the guest. Owns the choice of interfaces. Runs inside the namespace (`netns::within`).
//!
//! A redirect at ingress takes every frame before this kernel's own stack sees it, so the namespace
//! answers neither ARP nor ICMP although the addresses stay on the interface. The addresses must stay, since
//! plugins read them there at DEL (bridge finds its masquerade rules by them).

use std::{collections::BTreeMap, fs, io, path::Path};

use futures::TryStreamExt;
use netlink_packet_route::{
    AddressFamily,
    address::AddressMessage,
    link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage},
    neighbour::NeighbourMessage,
    route::RouteMessage,
};
use nix::libc;
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use runtime_fail_points::{Point, pass};

use crate::{NetError, PodInterface, PodNeighbour, PodRoute, dhcp, route, tap};

/// The parent of ingress filters: TC_H_MIN_INGRESS of the qdisc TC_H_CLSACT (linux/pkt_sched.h). The kernel
/// accepts it for our own `ingress` qdisc and for a `clsact` qdisc of a plugin.
const INGRESS_HANDLE: u32 = 0xffff_fff2;

/// Largest MTU of a tap: 65535 bytes with the Ethernet header (`tun_net_initialize`, drivers/net/tun.c).
const MTU_MAX: u16 = 65521;

/// Most interfaces of a pod: a VM has this many network slots.
const INTERFACES_MAX: usize = 4;

/// The pod's interfaces, routes and neighbours, in the guest's order.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) interfaces: Vec<PodInterface>,
    pub(crate) routes: Vec<PodRoute>,
    pub(crate) neighbours: Vec<PodNeighbour>,
    /// Names of the interfaces that took the frames of all groups before, for [`detach`].
    pub(crate) all_groups: Vec<String>,
}

/// The namespace's configuration by netlink, read once, before anything is changed.
struct NetlinkDump {
    links: Vec<LinkMessage>,
    addresses: Vec<AddressMessage>,
    routes: Vec<RouteMessage>,
    neighbours: Vec<NeighbourMessage>,
}

/// Joins the interfaces called `named`, in order, to taps. Any other Ethernet link follows if it is up and
/// has an address. `first` is the pod's first interface.
pub(crate) async fn attach(handle: Handle, first: &str, named: Vec<String>) -> Result<Attached, NetError> {
    let dump = NetlinkDump::read(&handle).await?;
    let chosen = choose(&dump, first, &named)?;
    let names: route::Names = chosen.iter().map(|(name, link)| (link.header.index, name.clone())).collect();
    let mut routes: Vec<PodRoute> =
        dump.routes.iter().filter_map(|message| route::route(message, &names)).collect();
    route::in_order(&mut routes);
    let neighbours = dump.neighbours.iter().filter_map(|message| route::neighbour(message, &names)).collect();
    let (mut interfaces, mut all_groups) = (Vec::new(), Vec::new());
    for (number, (name, link)) in chosen.into_iter().enumerate() {
        let index = link.header.index;
        if link.header.flags.contains(LinkFlags::Allmulti) {
            all_groups.push(name.clone());
        }
        let (mac, mtu) = (mac(&name, link)?, mtu(&name, link)?);
        let mine = |message: &&AddressMessage| message.header.index == index;
        let addresses = dump.addresses.iter().filter(mine).filter_map(route::address).collect();
        let tap_name = format!("tap{number}");
        let tap = tap::create(&tap_name)?;
        quieten(&name, &tap_name);
        join(&handle, index, mtu, &tap_name).await?;
        interfaces.push(PodInterface { name, mac, mtu, addresses, tap });
    }
    Ok(Attached { interfaces, routes, neighbours, all_groups })
}

impl NetlinkDump {
    async fn read(handle: &Handle) -> Result<NetlinkDump, NetError> {
        let failed = |what: &str| {
            let action = format!("reading {what}");
            move |source| NetError::Netlink { action, source }
        };
        let links = handle.link().get().execute().try_collect().await.map_err(failed("links"))?;
        let addresses = handle.address().get().execute().try_collect().await.map_err(failed("addresses"))?;
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut query = RouteMessageBuilder::<std::net::IpAddr>::new().build();
            query.header.address_family = family;
            let found: Vec<_> =
                handle.route().get(query).execute().try_collect().await.map_err(failed("routes"))?;
            routes.extend(found);
        }
        let neighbours =
            handle.neighbours().get().execute().try_collect().await.map_err(failed("neighbours"))?;
        Ok(NetlinkDump { links, addresses, routes, neighbours })
    }
}

/// Chooses the links for the guest, each with its name. Plugins also report interfaces that are none, as
/// notes for their own DEL. Of these only the first interface must be there.
fn choose<'a>(
    dump: &'a NetlinkDump,
    first: &str,
    named: &[String],
) -> Result<Vec<(String, &'a LinkMessage)>, NetError> {
    let by_name: BTreeMap<&str, &LinkMessage> =
        dump.links.iter().filter_map(|link| Some((name(link)?, link))).collect();
    let mut chosen: Vec<(String, &LinkMessage)> = Vec::new();
    for wanted in named {
        let Some(link) = by_name.get(wanted.as_str()) else {
            let reason = "reported by the CNI plugins, but not in the pod's network namespace";
            if wanted == first {
                return Err(NetError::Interface { name: wanted.clone(), reason: reason.into() });
            }
            tracing::warn!(interface = wanted, "an interface is {reason}: it does not reach the pod");
            continue;
        };
        if !chosen.iter().any(|(_, have)| have.header.index == link.header.index) {
            chosen.push((wanted.clone(), link));
        }
    }
    let has_address = |link: &LinkMessage| {
        let on_it = |message: &&AddressMessage| message.header.index == link.header.index;
        dump.addresses.iter().filter(on_it).any(|message| route::address(message).is_some())
    };
    for link in &dump.links {
        let usable = link.header.link_layer_type == LinkLayerType::Ether
            && link.header.flags.contains(LinkFlags::Up)
            && has_address(link);
        let known = chosen.iter().any(|(_, have)| have.header.index == link.header.index);
        if let (true, false, Some(name)) = (usable, known, name(link)) {
            chosen.push((name.to_owned(), link));
        }
    }
    match chosen.get(INTERFACES_MAX) {
        Some((name, _)) => Err(NetError::Interface {
            name: name.clone(),
            reason: format!("is one too many: a VM has {INTERFACES_MAX} network slots"),
        }),
        None => Ok(chosen),
    }
}

fn name(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

/// Returns the link's MAC, or an error if neighbours cannot be reached by MACs: the guest's driver refuses a
/// zero one, and a link of layer 3 drops ARP. A dummy has no ARP either, and its addresses work in the guest.
fn mac(name: &str, link: &LinkMessage) -> Result<[u8; 6], NetError> {
    let unfit = |reason: &str| NetError::Interface { name: name.to_owned(), reason: reason.into() };
    let bytes = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(bytes) => <[u8; 6]>::try_from(bytes.as_slice()).ok(),
        _ => None,
    });
    let mac = bytes
        .filter(|_| link.header.link_layer_type == LinkLayerType::Ether)
        .ok_or_else(|| unfit("is not an Ethernet link with a MAC"))?;
    let layer_3 = link.header.flags.contains(LinkFlags::Noarp)
        && matches!(kind(link), Some(InfoKind::Netkit | InfoKind::IpVlan));
    if mac == [0; 6] || layer_3 {
        return Err(unfit(
            "has no Ethernet addresses of its own (netkit or ipvlan in layer 3 mode), but a VM needs them; \
             use the layer 2 mode, or veth",
        ));
    }
    Ok(mac)
}

/// The link's kind, such as veth. A network card has none.
fn kind(link: &LinkMessage) -> Option<&InfoKind> {
    let details = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(details) => Some(details),
        _ => None,
    });
    details?.iter().find_map(|detail| match detail {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    })
}

fn mtu(name: &str, link: &LinkMessage) -> Result<u16, NetError> {
    let mtu = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    });
    let reason = || format!("its MTU {mtu:?} does not fit a tap (at most {MTU_MAX})");
    mtu.and_then(|mtu| u16::try_from(mtu).ok())
        .filter(|mtu| *mtu <= MTU_MAX)
        .ok_or_else(|| NetError::Interface { name: name.to_owned(), reason: reason() })
}

/// Stops the host's kernel from sending on the guest's links. Best effort: a host without IPv6 has none of
/// these files, and an interface still soliciting routers does not harm the guest.
fn quieten(interface: &str, tap: &str) {
    let keys =
        [(interface, "accept_ra", "0"), (interface, "router_solicitations", "0"), (tap, "disable_ipv6", "1")];
    for (link, key, value) in keys {
        let path = Path::new("/proc/sys/net/ipv6/conf").join(link).join(key);
        match pass(Point::TapQuiet).and_then(|()| fs::write(&path, value)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(path = %path.display(), %error, "cannot quieten a link of the pod");
            }
            _ => {}
        }
    }
}

/// Sets the tap up and redirects frames both ways between it and the interface with index `inner`. Groups are
/// joined in the guest, and this kernel would drop their frames at a macvlan or a network card. So the
/// interface takes the frames of all groups, and the tap's filter those of the guest.
async fn join(handle: &Handle, inner: u32, mtu: u16, tap_name: &str) -> Result<(), NetError> {
    let failed = |what: &str| {
        let action = format!("{what} {tap_name}");
        move |source| NetError::Netlink { action, source }
    };
    let by_name = handle.link().get().match_name(tap_name.to_owned());
    let link = by_name.execute().try_next().await.map_err(failed("finding"))?;
    let tap = link.ok_or(rtnetlink::Error::RequestFailed).map_err(failed("finding"))?.header.index;
    let point = pass(Point::TapJoin)
        .map_err(|error| NetError::Interface { name: tap_name.into(), reason: error.to_string() });
    point?;
    let up = LinkUnspec::new_with_index(tap).mtu(u32::from(mtu)).up().build();
    handle.link().set(up).execute().await.map_err(failed("setting up"))?;
    let all_groups = LinkUnspec::new_with_index(inner).allmulticast(true).build();
    handle.link().set(all_groups).execute().await.map_err(failed("taking frames of all groups for"))?;
    for (from, to) in [(inner, tap), (tap, inner)] {
        // Netlink counts interfaces in a signed and an unsigned type; indexes start at 1 and stay small.
        let from = from.cast_signed();
        match handle.qdisc().add(from).ingress().execute().await {
            Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == -libc::EEXIST => {}
            other => other.map_err(failed("adding the ingress qdisc for"))?,
        }
        let filter = handle.traffic_filter(from).add().parent(INGRESS_HANDLE);
        // Every protocol, in network byte order, as tc wants it.
        let filter = filter.protocol((libc::ETH_P_ALL as u16).to_be());
        let filter = filter.redirect(to).map_err(failed("building the redirect for"))?;
        filter.execute().await.map_err(failed("adding the redirect for"))?;
    }
    let answers = handle.traffic_filter(inner.cast_signed()).add().parent(INGRESS_HANDLE);
    let answers = dhcp::copies(answers, tap).map_err(failed("building the filter of DHCP for"))?;
    answers.execute().await.map_err(failed("adding the filter of DHCP for"))
}

/// Undoes the change of [`attach`] that outlives the namespace. A link of the node, lent to the pod by a
/// plugin, goes back to the node at DEL. It should not take the frames of all groups there, unless it is one
/// of `all_groups`, which did before.
pub(crate) async fn detach(handle: Handle, all_groups: Vec<String>) -> Result<(), NetError> {
    let failed = |source| NetError::Netlink { action: "resetting the pod's links".into(), source };
    let links: Vec<LinkMessage> = handle.link().get().execute().try_collect().await.map_err(failed)?;
    let is_changed = |link: &&LinkMessage| {
        link.header.flags.contains(LinkFlags::Allmulti)
            && !name(link).is_some_and(|name| all_groups.iter().any(|kept| kept == name))
    };
    for link in links.iter().filter(is_changed) {
        let some_groups = LinkUnspec::new_with_index(link.header.index).allmulticast(false).build();
        handle.link().set(some_groups).execute().await.map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(names: &[&str]) -> NetlinkDump {
        let links = names.iter().zip(1..).map(|(name, index)| {
            let mut link = LinkMessage::default();
            link.header.index = index;
            link.attributes = vec![LinkAttribute::IfName((*name).to_owned())];
            link
        });
        NetlinkDump { links: links.collect(), addresses: vec![], routes: vec![], neighbours: vec![] }
    }

    fn chosen(there: &[&str], named: &[&str]) -> Result<Vec<String>, String> {
        let named: Vec<String> = named.iter().map(ToString::to_string).collect();
        let dump = dump(there);
        let chosen = choose(&dump, "eth0", &named).map_err(|error| error.to_string())?;
        Ok(chosen.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn an_interface_that_is_only_a_plugins_note_is_left_out() {
        assert_eq!(chosen(&["lo", "eth0"], &["eth0", "dummy1"]).unwrap(), ["eth0"]);
        assert_eq!(chosen(&["lo", "net1", "eth0"], &["eth0", "net1", "eth0"]).unwrap(), ["eth0", "net1"]);
    }

    #[test]
    fn the_first_interface_must_be_there() {
        let refused = chosen(&["lo", "eth1"], &["eth0", "eth1"]).unwrap_err();
        assert!(
            refused.contains("eth0") && refused.contains("not in the pod's network namespace"),
            "{refused}"
        );
    }

    fn link(kind: InfoKind, mac: [u8; 6], flags: LinkFlags) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.header.link_layer_type = LinkLayerType::Ether;
        link.header.flags = flags;
        let kind = LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]);
        link.attributes = vec![LinkAttribute::Address(mac.into()), kind];
        link
    }

    #[test]
    fn links_without_ethernet_addresses_are_refused_by_name() {
        let some = [2, 0, 0, 0, 0, 1];
        for (kind, address) in
            [(InfoKind::Netkit, [0; 6]), (InfoKind::Netkit, some), (InfoKind::IpVlan, some)]
        {
            let refused = mac("eth0", &link(kind, address, LinkFlags::Noarp)).unwrap_err().to_string();
            assert!(refused.starts_with("interface eth0: has no Ethernet addresses of its own"), "{refused}");
        }
        // Of a driver without ARP, and with static neighbours.
        for kind in [InfoKind::Veth, InfoKind::Dummy] {
            assert_eq!(mac("eth0", &link(kind, some, LinkFlags::Noarp)).unwrap(), some);
        }
        assert_eq!(mac("eth0", &link(InfoKind::IpVlan, some, LinkFlags::empty())).unwrap(), some);
    }
}
