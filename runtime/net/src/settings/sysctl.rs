//! Compares the sysctls of a network namespace before and after plugins. Pure; `sysctl_files` reads them.

use super::values::{Directory, Values};

/// Interface sysctls either set by plugins to announce their new addresses at once, or derived from the link.
/// They mean nothing in the guest: the agent sets its interface's addresses and MTU.
const UPKEEP: &[&str] = &[
    "accept_dad",
    "arp_notify",
    "dad_transmits",
    "enhanced_dad",
    "keep_addr_on_down",
    "mtu",
    "ndisc_notify",
];

/// Returns the paths in `after` with other values than in `before`. A sysctl of a new interface is compared
/// with the kernel's value for new interfaces. Any other new sysctl belongs to a kernel module loaded in
/// between and has nothing to compare with.
pub(super) fn changes<'a>(before: &'a Values, after: &'a Values) -> impl Iterator<Item = (String, &'a str)> {
    after.unlike(before).flat_map(move |(directory, values)| {
        let known = before.directory(directory).into_iter().chain(of_new_interfaces(before, directory));
        let known: Vec<&Directory> = known.collect();
        values.iter().filter_map(move |(name, value)| {
            let was = known.iter().find_map(|known| known.get(name))?;
            if was == value {
                return None;
            }
            let path = format!("{directory}/{name}");
            (!is_upkeep(&path, value)).then_some((path, value))
        })
    })
}

/// For an interface's directory, returns the directories with the values of a new interface: `default`, or
/// else the loopback's, because nobody changes it. `neigh` has its `default` only in the node's own
/// namespace.
fn of_new_interfaces<'v>(values: &'v Values, directory: &str) -> impl Iterator<Item = &'v Directory> {
    let group = directory.rsplit_once('/').map(|(group, _)| group);
    let group =
        group.filter(|group| matches!(group.split('/').collect::<Vec<_>>()[..], [_, _, "conf" | "neigh"]));
    let of = move |group: &str| ["default", "lo"].map(|like| values.directory(&format!("{group}/{like}")));
    group.map(of).into_iter().flatten().flatten()
}

fn is_upkeep(path: &str, value: &str) -> bool {
    match split(path) {
        // IPv6 is enabled for an interface with an address of this family. A guest has it enabled already.
        Some([_, _, "conf", _, "disable_ipv6"]) => value == "0",
        Some([_, _, "conf", interface, key]) => {
            !matches!(interface, "all" | "default") && UPKEEP.contains(&key)
        }
        _ => false,
    }
}

/// A path of the form `net/ipv4/conf/eth0/forwarding`.
fn split(path: &str) -> Option<[&str; 5]> {
    let parts: Vec<&str> = path.split('/').collect();
    parts.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect()
    }

    fn changed(before: &[(&str, &str)], after: &[(&str, &str)]) -> Vec<String> {
        let (before, after) = (values(before), values(after));
        changes(&before, &after).map(|(path, value)| format!("{path}={value}")).collect()
    }

    #[test]
    fn a_value_that_was_changed_is_found_and_the_others_are_not() {
        let before = [("net/ipv4/ip_forward", "0"), ("net/core/somaxconn", "4096")];
        let after = [("net/ipv4/ip_forward", "0"), ("net/core/somaxconn", "8192")];
        assert_eq!(changed(&before, &after), ["net/core/somaxconn=8192"]);
        assert_eq!(changed(&before, &before), Vec::<String>::new());
    }

    #[test]
    fn a_new_interface_is_compared_with_the_default_of_a_fresh_namespace() {
        let before = [
            ("net/ipv4/conf/default/rp_filter", "2"),
            ("net/ipv6/neigh/lo/gc_stale_time", "60"),
            ("net/ipv4/conf/default/forwarding", "0"),
        ];
        let after = [
            ("net/ipv4/conf/default/forwarding", "1"),
            ("net/ipv4/conf/default/rp_filter", "2"),
            ("net/ipv4/conf/eth0.5/forwarding", "1"),
            ("net/ipv4/conf/eth0.5/rp_filter", "2"),
            ("net/ipv6/neigh/eth0/gc_stale_time", "90"),
        ];
        let expected = [
            "net/ipv4/conf/default/forwarding=1",
            "net/ipv4/conf/eth0.5/forwarding=1",
            "net/ipv6/neigh/eth0/gc_stale_time=90",
        ];
        assert_eq!(changed(&before, &after), expected);
    }

    #[test]
    fn what_comes_with_a_module_is_no_change() {
        assert_eq!(changed(&[], &[("net/netfilter/nf_conntrack_acct", "0")]), Vec::<String>::new());
    }

    #[test]
    fn what_plugins_set_for_their_own_addresses_is_no_change() {
        let before = [
            ("net/ipv4/conf/default/arp_notify", "0"),
            ("net/ipv6/conf/all/disable_ipv6", "1"),
            ("net/ipv6/conf/default/accept_dad", "1"),
            ("net/ipv6/conf/default/disable_ipv6", "0"),
            ("net/ipv6/conf/default/mtu", "1280"),
        ];
        let after = [
            ("net/ipv4/conf/eth0/arp_notify", "1"),
            ("net/ipv6/conf/all/disable_ipv6", "0"),
            ("net/ipv6/conf/eth0/accept_dad", "0"),
            ("net/ipv6/conf/eth0/mtu", "1400"),
        ];
        assert_eq!(changed(&before, &after), Vec::<String>::new());
        // A pod without IPv6 is intended by someone.
        let after = [("net/ipv6/conf/eth0/disable_ipv6", "1"), ("net/ipv4/conf/default/arp_notify", "1")];
        assert_eq!(
            changed(&before, &after),
            ["net/ipv4/conf/default/arp_notify=1", "net/ipv6/conf/eth0/disable_ipv6=1"]
        );
    }
}
