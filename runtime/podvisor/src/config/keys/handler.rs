//! The keys of a runtime handler.

use super::key::{Key, Takes};

/// In the order of the struct's fields.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "name",
        kind: "string",
        unset: None,
        text: "Name of the handler. No two handlers have the same name.",
        takes: Takes::Reload,
    },
    Key {
        name: "default",
        kind: "boolean",
        unset: None,
        text: "Run pods that name no handler. At most one handler may set this. A single handler is the \
               default without it. Without a default handler, such pods are refused.",
        takes: Takes::Reload,
    },
    Key {
        name: "memory_mib",
        kind: "number, MiB",
        unset: None,
        text: "Memory for the containers of a pod without a memory limit. In a pod with a limit it is for \
               the containers without a limit of their own.",
        takes: Takes::Reload,
    },
    Key {
        name: "memory_max_mib",
        kind: "number, MiB",
        unset: Some(("4096", "the memory of the node")),
        text: "Maximum memory of one pod's VM, including its overhead. A pod that needs more is refused.",
        takes: Takes::Reload,
    },
    Key {
        name: "vcpus_max",
        kind: "number, 1 to 64",
        unset: Some(("8", "the number of the node's CPUs")),
        text: "Maximum number of vCPUs of one pod's VM.",
        takes: Takes::Reload,
    },
    Key {
        name: "scratch_mib",
        kind: "number, MiB",
        unset: None,
        text: "Size of a pod's scratch disk, for files written by its containers. The disk is a sparse file \
               in `paths.state`.",
        takes: Takes::Reload,
    },
    Key {
        name: "scratch_sum_mib",
        kind: "number, MiB",
        unset: Some(("65536", "no bound")),
        text: "Maximum size of all scratch disks of the handler's pods together, at least `scratch_mib`. A \
               pod beyond it is refused until another one has ended. A pod's disk counts until the pod is \
               stopped, even if its VM has died.",
        takes: Takes::Reload,
    },
    Key {
        name: "writable_layer_mib",
        kind: "number, MiB",
        unset: Some(("1024", "the pod's scratch disk")),
        text: "Maximum size of one container's writable layer on the scratch disk. A program that writes \
               more gets EDQUOT.",
        takes: Takes::Reload,
    },
    Key {
        name: "share_all_volumes",
        kind: "boolean",
        unset: None,
        text: "Let pods access all of their volumes on the node. With `false` the VM keeps the pod's \
               emptyDirs itself, and programs of the node do not see their files. It also gets copies of the \
               pod's ConfigMaps, Secrets and similar volumes.",
        takes: Takes::Reload,
    },
    Key {
        name: "volume_cache",
        kind: "`none`, `auto` or `always`",
        unset: None,
        text: "How guests cache files of volumes on the node, in their own memory. `none`: only files mapped \
               by programs; each read and write goes to the node. `auto`: contents of files while their \
               sizes and times stay the same; each read checks them. `always`: also names and attributes, \
               for volumes changed only by the pod. Guests miss other changes for up to a day.",
        takes: Takes::Reload,
    },
    Key {
        name: "host_sockets",
        kind: "list of paths",
        unset: None,
        text: "Unix sockets of the node for containers, at most sixteen and only for streams. A container \
               mounts the socket or a directory around it. The node's server sees a process in the pod's \
               cgroup, with the pod's numeric user and groups, or else those of the user nobody. A pod \
               started with an empty list cannot use sockets added later.",
        takes: Takes::Reload,
    },
    Key {
        name: "kernel",
        kind: "`small` or `full`",
        unset: None,
        text: "Kernel of the pods' guests. `small` boots fastest and takes the least memory. `full` adds the \
               features of a distribution's kernel, for images that mount network shares, load legacy \
               firewall rules or inspect the kernel.",
        takes: Takes::Reload,
    },
    Key {
        name: "template",
        kind: "`off`, `namespace` or `node`",
        unset: None,
        text: "Which pods start from a VM snapshot instead of booting. They start sooner, and take less \
               memory together. They share some random values, chosen by the kernel when the snapshot's VM \
               booted, and read the same pages of memory. `off`: none. `namespace`: the pods of one \
               namespace share snapshots. `node`: all pods share them. A pod boots if its size has no \
               snapshot yet.",
        takes: Takes::Reload,
    },
    Key {
        name: "spare_vms",
        kind: "number, at most 64",
        unset: None,
        text: "Maximum number of VMs started in advance from a template. They are ready except for the pod's \
               name and network. There is one for each pod of the last five minutes, and at least one with \
               `template = \"node\"`. There are none while the node is short of memory. Each takes about ten \
               MiB. Needs a `template` other than `off`.",
        takes: Takes::Reload,
    },
];
