//! A case: a request to both runtimes, in the form of the files in `cases/`.
//!
//! Omitted fields are as in a kubelet's request for the plainest container. The module owns the form and
//! knows no runtime.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One container, its image and its pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Case {
    /// Name of the behaviour. Unique in the whole table.
    pub(crate) name: String,
    /// The question's source, if others asked it first: a test of another runtime, a public report.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) from: String,
    /// The image. Without it busybox.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) image: Image,
    /// The pod. Without it, a pod shared with other cases.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) pod: Pod,
    /// The container's command: a line of shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sh: Option<String>,
    /// The container's command, word by word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<Vec<String>>,
    /// The container's arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) args: Vec<String>,
    /// Environment: `NAME=value` each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<String>,
    /// Working directory.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) cwd: String,
    /// The process's user and rights.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) security: Security,
    /// Limits.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) limits: Limits,
    /// Mounts, in the order of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) mounts: Vec<Mount>,
    /// Devices of the node: `/dev/x`, or `/dev/x:/dev/y:rwm`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) devices: Vec<String>,
    /// The container has a terminal.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) tty: bool,
    /// The container has an input.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) stdin: bool,
    /// Signal for stopping the container: the number in the API's enumeration, 0 for the image's.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) stop_signal: i32,
    /// Commands, each a line of shell, one after the other. With any the container is stopped after them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) exec: Vec<String>,
    /// Commands, word by word, after those.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) exec_words: Vec<Vec<String>>,
    /// Timeout of each command in seconds; 0 for no limit.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) exec_timeout: i64,
    /// Seconds of grace for stopping the container. Without it and without commands the container ends by
    /// itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop: Option<i64>,
}

/// An image: busybox with some more on top.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Image {
    /// Entries of a layer over busybox, as [`tree`](crate::tree) has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tree: Vec<String>,
    /// Fields of the image's `config`, if different from busybox's.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) config: Map<String, Value>,
    /// Fields beside `config`, if different from busybox's.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) document: Map<String, Value>,
    /// Changed fields of the manifest.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) manifest: Map<String, Value>,
    /// No busybox below: the layer is all there is.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) scratch: bool,
}

/// A pod's own settings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Pod {
    /// Host name, if another than `parity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hostname: Option<String>,
    /// Sysctls.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) sysctls: BTreeMap<String, String>,
    /// Name servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) dns_servers: Vec<String>,
    /// Domains to search.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) dns_searches: Vec<String>,
    /// Options of the resolver.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) dns_options: Vec<String>,
    /// The pod may hold privileged containers.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) privileged: bool,
    /// Containers share one process namespace.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) shared_pids: bool,
    /// The sandbox's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<i64>,
    /// The sandbox's group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gid: Option<i64>,
    /// The sandbox's supplemental groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<i64>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// A container's user and privileges.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Security {
    /// User by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<i64>,
    /// User by name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) username: String,
    /// Group by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gid: Option<i64>,
    /// Supplemental groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<i64>,
    /// Supplemental groups of the image do not count.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) strict_groups: bool,
    /// Privileged.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) privileged: bool,
    /// Read-only root.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) read_only: bool,
    /// Capabilities to add.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) add: Vec<String>,
    /// Capabilities to drop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) drop: Vec<String>,
    /// Set `no_new_privs`.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) no_new_privs: bool,
    /// Masked and read-only paths are left out, as with `procMount: Unmasked`.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) unmasked: bool,
    /// Masked paths in place of the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) masked: Option<Vec<String>>,
    /// Read-only paths in place of the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read_only_paths: Option<Vec<String>>,
    /// `default`, or a profile as JSON. Without it the container is unconfined.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) seccomp: String,
}

/// A container's limits.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Memory in MiB.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) memory_mib: i64,
    /// Memory and swap in MiB.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) swap_mib: i64,
    /// CPU time in microseconds of each period.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) cpu_quota: i64,
    /// The period in microseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) cpu_period: i64,
    /// CPU shares, as version 1 of cgroups has them.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) cpu_shares: i64,
    /// Processors.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) cpuset: String,
    /// Adjustment of the score for the out-of-memory killer.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) oom_score_adj: i64,
    /// Files of version 2 of cgroups.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) unified: BTreeMap<String, String>,
}

/// A mount. Its source is recreated for each runtime, except for `node`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Mount {
    /// Path in the container.
    pub(crate) to: String,
    /// The source is a file of this content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// The source is a directory with these entries. Without `file`, `node` and `missing` it is an empty one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tree: Vec<String>,
    /// The source is this path of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// The source does not exist.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) missing: bool,
    /// Read-only.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) read_only: bool,
    /// Read-only with all mounts below.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) recursive_read_only: bool,
    /// Propagation: `host-to-container` or `bidirectional`. Private without it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) propagation: String,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
