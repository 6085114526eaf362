//! Kernel settings of a pod's guest: a node's settings for its pods, unless the pod names them. Pure.

use std::collections::BTreeMap;

use crate::PodSpec;

/// Network settings made by containerd 2 for every pod (`enable_unprivileged_ports`,
/// `enable_unprivileged_icmp`): users may listen on any port, and may ping.
const PORTS: (&str, &str) = ("net.ipv4.ip_unprivileged_port_start", "0");
const PING: (&str, &str) = ("net.ipv4.ping_group_range", "0 2147483647");

/// A new network namespace inherits this from its node, and nodes of a cluster route. Programs creating a
/// tunnel rely on it, and cannot set it.
const FORWARD: (&str, &str) = ("net.ipv4.ip_forward", "1");

/// A kubelet's setting on its node (`setupKernelTunables`): programs may reserve more memory than there is.
const OVERCOMMIT: (&str, &str) = ("vm.overcommit_memory", "1");

/// What distributions set on a node, or what databases ask their operators to set there. No pod can name
/// them, because a kubelet allows only settings of namespaces. They cost nothing until they are used.
const MAP_COUNT: (&str, &str) = ("vm.max_map_count", "1048576");
const ASYNC_REQUESTS: (&str, &str) = ("fs.aio-max-nr", "1048576");

/// Settings of distributions on every node (systemd's `50-default.conf`, procps' `protect-links.conf`). They
/// keep a program from following a link, and from opening a file, that another user put in its way in a
/// directory like `/tmp`. The kernel's own values are 0 (fs/namei.c).
const LINKS: [(&str, &str); 4] = [
    ("fs.protected_fifos", "1"),
    ("fs.protected_hardlinks", "1"),
    ("fs.protected_regular", "2"),
    ("fs.protected_symlinks", "1"),
];

impl PodSpec {
    /// The kernel settings to make in the guest.
    pub fn guest_sysctls(&self) -> BTreeMap<String, String> {
        // Groups beyond a user namespace's mapping are not the network's.
        let has_user_namespace = !self.namespaces.gids.is_empty();
        let defaults = [PORTS, FORWARD, OVERCOMMIT, MAP_COUNT, ASYNC_REQUESTS].into_iter().chain(LINKS);
        let mut all = self.sysctls.clone();
        for (name, value) in defaults.chain((!has_user_namespace).then_some(PING)) {
            // Both separators are in use (sysctl(8)).
            if !self.sysctls.keys().any(|asked| asked.replace('/', ".") == name) {
                all.insert(name.to_owned(), value.to_owned());
            }
        }
        all
    }

    /// The names in [`guest_sysctls`](Self::guest_sysctls) that the pod does not ask for. Settings of its
    /// network override them.
    pub fn default_sysctls(&self) -> Vec<String> {
        self.guest_sysctls().into_keys().filter(|name| !self.sysctls.contains_key(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IdMapping, Namespaces};

    fn sysctls(asked: &[(&str, &str)]) -> BTreeMap<String, String> {
        let sysctls = asked.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        PodSpec { sysctls, ..PodSpec::default() }.guest_sysctls()
    }

    #[test]
    fn users_listen_on_any_port_and_ping_unless_the_pod_says_otherwise() {
        let all = sysctls(&[]);
        assert_eq!((all[PORTS.0].as_str(), all[PING.0].as_str()), ("0", "0 2147483647"));
        assert_eq!(all[FORWARD.0], "1");
        assert_eq!(all["vm.max_map_count"], "1048576", "Elasticsearch starts from 262144");
        assert_eq!(LINKS.map(|(name, _)| all[name].as_str()), ["1", "1", "2", "1"]);
        let asked = sysctls(&[("net/ipv4/ip_unprivileged_port_start", "500"), (OVERCOMMIT.0, "2")]);
        assert_eq!(asked["net/ipv4/ip_unprivileged_port_start"], "500");
        assert!(!asked.contains_key(PORTS.0));
        assert_eq!(asked[OVERCOMMIT.0], "2");
    }

    #[test]
    fn what_the_pod_asks_for_is_no_default() {
        let sysctls = [(PORTS.0.to_owned(), "0".to_owned()), ("net.core.somaxconn".into(), "9".into())];
        let pod = PodSpec { sysctls: sysctls.into(), ..PodSpec::default() };
        let mut defaults = vec![ASYNC_REQUESTS.0];
        defaults.extend(LINKS.map(|(name, _)| name));
        defaults.extend([FORWARD.0, PING.0, MAP_COUNT.0, OVERCOMMIT.0]);
        assert_eq!(pod.default_sysctls(), defaults);
    }

    #[test]
    fn a_user_namespace_has_no_groups_to_ping_by() {
        let gids = vec![IdMapping { host_id: 65536, container_id: 0, length: 65536 }];
        let namespaces = Namespaces { gids, ..Namespaces::default() };
        let all = PodSpec { namespaces, ..PodSpec::default() }.guest_sysctls();
        assert!(!all.contains_key(PING.0) && all.contains_key(PORTS.0));
    }
}
