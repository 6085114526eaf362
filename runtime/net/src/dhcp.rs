//! Answers of a DHCP server, for a plugin that keeps a pod's lease from inside its namespace (`ipam` of the
//! type `dhcp`). The redirect to the guest would take them away, and at the lease's end the plugin sets the
//! interface down. So each reaches both the guest and the namespace.

use netlink_packet_route::tc::{
    TcAction, TcActionAttribute, TcActionGeneric, TcActionMirror, TcActionMirrorOption, TcActionOption,
    TcActionType, TcFilterU32Option, TcMirror, TcMirrorActionType, TcU32Key, TcU32Selector,
    TcU32SelectorFlags,
};
use nix::libc;
use rtnetlink::TrafficFilterNewRequest;

/// The port of DHCP clients (RFC 2131, section 4.1).
const CLIENT_PORT: u32 = 68;

/// Completes the filter: it copies the answers to the link with index `to`, and lets them go on. Without a
/// priority of its own it comes before the link's earlier filters (`tcf_auto_prio`, net/sched/cls_api.c).
pub(crate) fn copies(
    filter: TrafficFilterNewRequest,
    to: u32,
) -> Result<TrafficFilterNewRequest, rtnetlink::Error> {
    // In network byte order, as tc wants it.
    let filter = filter.protocol((libc::ETH_P_IP as u16).to_be());
    let mut selector = TcU32Selector::default();
    selector.flags = TcU32SelectorFlags::Terminal;
    // From the beginning of an IPv4 header without options: its protocol, and UDP's destination port.
    selector.keys = vec![key(8, 0x00ff_0000, (libc::IPPROTO_UDP as u32) << 16), key(20, 0xffff, CLIENT_PORT)];
    selector.nkeys = 2;
    let mut mirror = TcMirror::default();
    mirror.generic = TcActionGeneric::default();
    mirror.generic.action = TcActionType::Pipe;
    mirror.eaction = TcMirrorActionType::EgressMirror;
    mirror.ifindex = to;
    let mut action = TcAction::default();
    action.attributes = vec![
        TcActionAttribute::Kind(TcActionMirror::KIND.to_owned()),
        TcActionAttribute::Options(vec![TcActionOption::Mirror(TcActionMirrorOption::Parms(mirror))]),
    ];
    filter.u32(&[TcFilterU32Option::Selector(selector), TcFilterU32Option::Action(vec![action])])
}

fn key(offset: i32, mask: u32, value: u32) -> TcU32Key {
    let mut key = TcU32Key::default();
    (key.off, key.mask, key.val) = (offset, mask, value);
    key
}
