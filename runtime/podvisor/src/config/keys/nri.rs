//! The keys of plugins.

use super::{Key, Takes};

/// The keys of `[nri]`.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "enabled",
        kind: "boolean",
        unset: None,
        text: "Whether there are plugins.",
        takes: Takes::Restart,
    },
    Key {
        name: "socket",
        kind: "path",
        unset: Some((
            "\"/run/podvisor/nri.sock\"",
            "`/var/run/nri/nri.sock`; with another runtime behind Podvisor, which may serve that one, `nri.sock` in `paths.run`",
        )),
        text: "The socket for plugins that connect. Its mode is 0600. A socket that another process serves is left to it.",
        takes: Takes::Restart,
    },
    Key {
        name: "connections",
        kind: "boolean",
        unset: None,
        text: "Whether plugins may connect. Without it there are those alone that Podvisor starts.",
        takes: Takes::Restart,
    },
    Key {
        name: "plugin_dir",
        kind: "path",
        unset: None,
        text: "Directory of plugins that Podvisor starts: executable files whose names begin with two digits and `-`. Plugins are \
               asked in the order of these numbers.",
        takes: Takes::Restart,
    },
    Key {
        name: "plugin_conf_dir",
        kind: "path",
        unset: None,
        text: "Directory of the configurations of plugins that Podvisor starts: `10-name.conf`, or `name.conf` for every number.",
        takes: Takes::Restart,
    },
    Key {
        name: "registration_timeout_seconds",
        kind: "number",
        unset: None,
        text: "How long a plugin may take to register, and after that to take what pods and containers there are.",
        takes: Takes::Restart,
    },
    Key {
        name: "request_timeout_seconds",
        kind: "number",
        unset: None,
        text: "How long a plugin may take to answer. One that takes longer is dropped, and the pod goes on without it.",
        takes: Takes::Restart,
    },
    Key {
        name: "unsupported",
        kind: "`refuse` or `ignore`",
        unset: None,
        text: "What becomes of what a plugin asks for and a container in a VM cannot have (hooks, namespaces and cgroups of the \
               node): the container is not made, or it is made without it.",
        takes: Takes::Restart,
    },
];
