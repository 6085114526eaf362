//! The keys of isolation.

use super::key::{Key, Takes};

/// In the order of the struct's fields.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "tenancy",
        kind: "`trusted` or `hostile`",
        unset: None,
        text: "How far the node's pods are trusted. `hostile` is for people without trust in each other or \
               in their own programs. It changes these defaults: `isolation.walls` to `require`, \
               `cgroup.strict` to `true`, `cni.settings` to `replay-or-refuse`, and each handler's \
               `template` to `namespace`. A file with a less strict value for them is refused. The file also \
               must not set `host_sockets`, `volume_cache = \"always\"`, a `metrics.address` other than \
               loopback, or `upstream.unnamed_pods = \"all\"`.",
        takes: Takes::Reload,
    },
    Key {
        name: "walls",
        kind: "`report` or `require`",
        unset: None,
        text: "How to treat pods if the node's kernel lacks a wall around their VMMs: Landlock, seccomp, \
               namespaces, or cgroup v2 with its controllers. `report`: they start, and `podvisor check`, \
               Status and a metric name the wall. `require`: they are refused, and the error names it.",
        takes: Takes::Reload,
    },
];
