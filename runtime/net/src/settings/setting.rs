//! One setting of a namespace other than a sysctl, with its human-readable form. Owns the type only.

use std::fmt;

/// A setting absent from a fresh namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Setting {
    /// An nftables table; `iptables` over nf_tables creates such tables too.
    NftTable {
        /// The family's number (`NFPROTO_*` of linux/netfilter.h).
        family: u8,
        /// The table's name.
        name: String,
    },
    /// A table of legacy iptables, with its own kernel interface.
    LegacyTable {
        /// The command to show the table.
        tool: &'static str,
        /// The table's name.
        name: String,
    },
    /// A routing rule: it selects a routing table.
    RoutingRule {
        /// "ip" or "ip -6".
        tool: &'static str,
        /// The priority.
        priority: u32,
        /// The selected routing table.
        table: u32,
    },
    /// A routing table other than the kernel's own, with routes in it.
    RoutingTable {
        /// "ip" or "ip -6".
        tool: &'static str,
        /// The table's number.
        table: u32,
    },
    /// A route of the main table that discards packets, or sends an error back.
    DiscardingRoute {
        /// "ip" or "ip -6".
        tool: &'static str,
        /// The kind: "blackhole", "prohibit".
        kind: &'static str,
        /// The destination, with its prefix length.
        destination: String,
    },
    /// A part of a route of the main table. The guest has the route without it, or not at all if the part is
    /// a type of service.
    RouteDetail {
        /// "ip" or "ip -6".
        tool: &'static str,
        /// The destination, with its prefix length.
        destination: String,
        /// The part: "initcwnd", "further next hops".
        detail: &'static str,
    },
    /// An explicitly created queueing discipline; tc filters attach to these.
    Qdisc {
        /// The kind: "clsact", "tbf".
        kind: String,
        /// The name of its interface.
        interface: String,
    },
}

/// Returns `nft`'s name for a family's number (linux/netfilter.h).
pub(super) fn family_name(family: u8) -> &'static str {
    match family {
        1 => "inet",
        2 => "ip",
        3 => "arp",
        5 => "netdev",
        7 => "bridge",
        10 => "ip6",
        _ => "unknown",
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::NftTable { family, name } => {
                write!(f, "the nftables table {} {}", family_name(*family), name.escape_debug())
            }
            Setting::LegacyTable { tool, name } => {
                write!(f, "the {tool} table {} (legacy iptables)", name.escape_debug())
            }
            Setting::RoutingRule { tool, priority, table } => {
                write!(f, "the `{tool} rule` {priority} to table {table}")
            }
            Setting::RoutingTable { tool, table } => write!(f, "routes in table {table} of `{tool} route`"),
            Setting::DiscardingRoute { tool, kind, destination } => {
                write!(f, "the route {kind} {destination} of `{tool} route`")
            }
            Setting::RouteDetail { tool, destination, detail } => {
                write!(f, "the {detail} of the route {destination} of `{tool} route`")
            }
            Setting::Qdisc { kind, interface } => {
                write!(f, "the tc qdisc {} on {}", kind.escape_debug(), interface.escape_debug())
            }
        }
    }
}
