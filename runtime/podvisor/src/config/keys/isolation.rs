//! The keys of isolation.

use super::key::{Key, Takes};

/// In the order of the struct's fields.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "tenancy",
        kind: "`trusted` or `hostile`",
        unset: None,
        text: "Whose pods the node runs. `hostile`: people who trust neither each other nor what they run. It changes the defaults \
               of `isolation.walls` to `require`, of `cgroup.strict` to `true`, of `cni.settings` to `replay-or-refuse` and of \
               each handler's `template` to `namespace`, and refuses a file that sets them to what is less strict, that names \
               `host_sockets`, that has `volume_cache = \"always\"`, that serves figures on other addresses than loopback, or that \
               hands all unnamed pods to another runtime.",
        takes: Takes::Reload,
    },
    Key {
        name: "walls",
        kind: "`report` or `require`",
        unset: None,
        text: "What becomes of pods where the node's kernel lacks a wall around their VMMs: Landlock, seccomp, namespaces, or \
               cgroup v2 with its controllers. `report`: they start, and `podvisor check`, Status and a metric name the wall. \
               `require`: they are refused, and the error names it.",
        takes: Takes::Reload,
    },
];
