//! The keys of plugins.

use super::{Key, Takes};

/// The keys of `[nri]`.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "enabled",
        kind: "boolean",
        unset: None,
        text: "Use plugins. With `false` no plugin is started, and none can connect.",
        takes: Takes::Restart,
    },
    Key {
        name: "socket",
        kind: "path",
        unset: Some((
            "\"/run/podvisor/nri.sock\"",
            "`/var/run/nri/nri.sock`, or `nri.sock` in `paths.run` with another runtime behind Podvisor",
        )),
        text: "Socket for connecting plugins. Its mode is 0600. Podvisor never takes a socket from another \
               process. By default it leaves the usual one to another runtime behind it.",
        takes: Takes::Restart,
    },
    Key {
        name: "connections",
        kind: "boolean",
        unset: None,
        text: "Let plugins connect. With `false` there are only plugins started by Podvisor.",
        takes: Takes::Restart,
    },
    Key {
        name: "plugin_dir",
        kind: "path",
        unset: None,
        text: "Directory of plugins started by Podvisor: executable files whose names begin with two digits \
               and `-`. The digits give the order of the plugins.",
        takes: Takes::Restart,
    },
    Key {
        name: "plugin_conf_dir",
        kind: "path",
        unset: None,
        text: "Directory of configurations for plugins started by Podvisor: `10-name.conf`, or `name.conf` \
               for every number.",
        takes: Takes::Restart,
    },
    Key {
        name: "registration_timeout_seconds",
        kind: "number",
        unset: None,
        text: "Timeout for a plugin to register, from 1 to 60 seconds. The same timeout applies again to its \
               processing of the existing pods and containers.",
        takes: Takes::Restart,
    },
    Key {
        name: "request_timeout_seconds",
        kind: "number",
        unset: None,
        text: "Timeout for a plugin's answer, from 1 to 60 seconds. A slower plugin is disconnected, and the \
               pod goes on without it. If this plugin validates adjustments, the container is not created.",
        takes: Takes::Restart,
    },
    Key {
        name: "unsupported",
        kind: "`refuse` or `ignore`",
        unset: None,
        text: "How to treat a plugin's adjustments if a VM does not support them: hooks, and namespaces and \
               cgroups of the node. `refuse`: the container is not created. `ignore`: it is created without \
               them.",
        takes: Takes::Restart,
    },
];
