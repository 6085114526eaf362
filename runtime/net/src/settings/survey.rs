//! Reads all settings of a namespace possibly set by a plugin. Runs inside the namespace (`netns::within`)
//! and changes nothing there.

use std::{collections::BTreeSet, fs, io, path::Path};

use futures::{Stream, TryStreamExt, pin_mut};
use netlink_packet_route::{
    AddressFamily,
    route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType},
    rule::{RuleAttribute, RuleMessage},
    tc::{TcAttribute, TcHandle, TcMessage},
};
use rtnetlink::{Handle, IpVersion, RouteMessageBuilder};

use super::{netfilter, route_details, setting::Setting, sysctl_files::SysctlFiles, values::Values};
use crate::NetError;

/// Most settings kept per namespace, other than sysctls. Routes in a routing table of their own count too.
const SETTINGS_MAX: usize = 4096;

/// Routing tables present in every namespace: unspecified, default, main and local (linux/rtnetlink.h).
const OWN_TABLES: [u32; 4] = [0, 253, 254, 255];

/// The tool to show legacy tables, and the file listing the existing ones. The file appears when its module
/// is loaded. A table appears when it is first read or written.
const LEGACY: [(&str, &str); 3] =
    [("iptables", "ip_tables_names"), ("ip6tables", "ip6_tables_names"), ("arptables", "arp_tables_names")];

/// A namespace's settings at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Survey {
    pub(super) sysctls: Values,
    pub(super) settings: BTreeSet<Setting>,
}

impl Survey {
    /// Reads the settings of this thread's namespace. Its sysctl files may already be open.
    pub(crate) async fn take(
        handle: Handle,
        mut files: SysctlFiles,
    ) -> Result<(Survey, SysctlFiles), NetError> {
        let failed = |what: &'static str| move |source| NetError::Settings { what, source };
        let sysctls = files.read().map_err(failed("the sysctls"))?;
        let mut survey = Survey { sysctls, settings: BTreeSet::new() };
        // `/proc/net` would be the process's, and so the node's own.
        let tables =
            legacy(Path::new("/proc/thread-self/net")).map_err(failed("the tables of legacy iptables"))?;
        survey.settings.extend(tables);
        survey.settings.extend(netfilter::tables().map_err(failed("the tables of nftables"))?);
        survey.routing(&handle).await?;
        if survey.settings.len() > SETTINGS_MAX {
            let source = io::Error::other(format!("more than {SETTINGS_MAX} of them"));
            return Err(failed("the settings")(source));
        }
        Ok((survey, files))
    }

    async fn routing(&mut self, handle: &Handle) -> Result<(), NetError> {
        for (tool, version, family) in
            [("ip", IpVersion::V4, AddressFamily::Inet), ("ip -6", IpVersion::V6, AddressFamily::Inet6)]
        {
            let rules = handle.rule().get(version).execute();
            self.keep("reading rules of routing", rules, |message| Some(rule(tool, &message))).await?;
            let mut query = RouteMessageBuilder::<std::net::IpAddr>::new().build();
            query.header.address_family = family;
            let routes = handle.route().get(query).execute();
            let settings = |message: RouteMessage| {
                let mut settings = route_details::details(tool, &message);
                settings.extend(table(tool, &message).or_else(|| discarding(tool, &message)));
                settings
            };
            self.keep("reading routes", routes, settings).await?;
        }
        let qdiscs = handle.qdisc().get().execute();
        self.keep("reading queueing disciplines", qdiscs, |message| qdisc(&message)).await
    }

    /// Keeps the settings among these messages. Stops early if there are too many.
    async fn keep<M, S: IntoIterator<Item = Setting>>(
        &mut self,
        action: &str,
        messages: impl Stream<Item = Result<M, rtnetlink::Error>>,
        settings: impl Fn(M) -> S,
    ) -> Result<(), NetError> {
        pin_mut!(messages);
        let failed = |source| NetError::Netlink { action: action.to_owned(), source };
        while let Some(message) = messages.try_next().await.map_err(failed)? {
            self.settings.extend(settings(message));
            if self.settings.len() > SETTINGS_MAX {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the existing legacy tables, from the files below `proc_net`.
fn legacy(proc_net: &Path) -> io::Result<Vec<Setting>> {
    let mut tables = Vec::new();
    for (tool, file) in LEGACY {
        let names = match fs::read_to_string(proc_net.join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            names => names?,
        };
        tables.extend(names.lines().map(|name| Setting::LegacyTable { tool, name: name.to_owned() }));
    }
    Ok(tables)
}

fn rule(tool: &'static str, message: &RuleMessage) -> Setting {
    let (mut priority, mut table) = (0, u32::from(message.header.table));
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(number) => priority = *number,
            RuleAttribute::Table(number) => table = *number,
            _ => {}
        }
    }
    Setting::RoutingRule { tool, priority, table }
}

fn table(tool: &'static str, message: &RouteMessage) -> Option<Setting> {
    let long = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(number) => Some(*number),
        _ => None,
    });
    let table = long.unwrap_or(u32::from(message.header.table));
    (!OWN_TABLES.contains(&table)).then_some(Setting::RoutingTable { tool, table })
}

/// Returns the route if it is of the main table and has no next hop. The kernel's own are no setting.
fn discarding(tool: &'static str, message: &RouteMessage) -> Option<Setting> {
    let kind = match message.header.kind {
        RouteType::BlackHole => "blackhole",
        RouteType::Unreachable => "unreachable",
        RouteType::Prohibit => "prohibit",
        RouteType::Throw => "throw",
        _ => return None,
    };
    if message.header.table != RouteHeader::RT_TABLE_MAIN || message.header.protocol == RouteProtocol::Kernel
    {
        return None;
    }
    Some(Setting::DiscardingRoute { tool, kind, destination: route_details::destination(message) })
}

/// Returns `None` for a discipline without a handle: the kernel attached it by itself.
fn qdisc(message: &TcMessage) -> Option<Setting> {
    if message.header.handle == TcHandle::UNSPEC {
        return None;
    }
    let kind = message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.clone()),
        _ => None,
    });
    let index = message.header.index;
    let name = nix::net::if_::if_indextoname(index.cast_unsigned()).unwrap_or_default();
    // An interface removed just now has no name, or an empty one.
    let interface = match name.to_string_lossy() {
        name if name.is_empty() => format!("interface {index}"),
        name => name.into_owned(),
    };
    Some(Setting::Qdisc { kind: kind.unwrap_or_default(), interface })
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::route::RouteAddress;

    use super::*;

    #[test]
    fn legacy_tables_are_those_that_the_kernel_names() {
        let proc_net = tempfile::tempdir().unwrap();
        assert_eq!(legacy(proc_net.path()).unwrap(), []);
        fs::write(proc_net.path().join("ip_tables_names"), "nat\nmangle\n").unwrap();
        fs::write(proc_net.path().join("ip6_tables_names"), "").unwrap();
        let table = |name: &str| Setting::LegacyTable { tool: "iptables", name: name.into() };
        assert_eq!(legacy(proc_net.path()).unwrap(), [table("nat"), table("mangle")]);
    }

    #[test]
    fn the_kernels_own_routing_tables_are_no_setting() {
        let mut message = RouteMessage::default();
        message.header.table = 254;
        assert_eq!(table("ip", &message), None);
        message.header.table = 252;
        // The number of a table beyond 255 is in an attribute (RT_TABLE_COMPAT in the header).
        message.attributes.push(RouteAttribute::Table(1000));
        assert_eq!(table("ip", &message), Some(Setting::RoutingTable { tool: "ip", table: 1000 }));
    }

    #[test]
    fn a_route_that_discards_is_a_setting_but_for_the_kernels_own() {
        let mut message = RouteMessage::default();
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.kind = RouteType::Prohibit;
        message.header.protocol = RouteProtocol::Boot;
        let found = discarding("ip", &message).unwrap().to_string();
        assert_eq!(found, "the route prohibit default of `ip route`");
        message.header.destination_prefix_length = 32;
        message
            .attributes
            .push(RouteAttribute::Destination(RouteAddress::Inet("192.0.2.1".parse().unwrap())));
        let found = discarding("ip", &message).unwrap().to_string();
        assert_eq!(found, "the route prohibit 192.0.2.1/32 of `ip route`");
        let mut others = [message.clone(), message.clone(), message];
        others[0].header.kind = RouteType::Unicast;
        others[1].header.protocol = RouteProtocol::Kernel;
        others[2].header.table = 255;
        assert!(others.iter().all(|other| discarding("ip", other).is_none()));
    }

    #[test]
    fn a_queueing_discipline_of_the_kernels_own_is_no_setting() {
        let mut message = TcMessage::default();
        message.attributes.push(TcAttribute::Kind("noqueue".into()));
        assert_eq!(qdisc(&message), None);
        message.header.handle = TcHandle { major: 1, minor: 0 };
        message.header.index = i32::MAX;
        let found = qdisc(&message).unwrap().to_string();
        assert_eq!(found, "the tc qdisc noqueue on interface 2147483647");
    }
}
