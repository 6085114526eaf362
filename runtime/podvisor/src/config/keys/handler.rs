//! The keys of a runtime handler.

use super::key::{Key, Takes};

/// In the order of the struct's fields.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "name",
        kind: "string",
        unset: None,
        text: "Name of the handler. Each name may be there once.",
        takes: Takes::Reload,
    },
    Key {
        name: "default",
        kind: "boolean",
        unset: None,
        text: "Whether this handler runs pods that name no handler. At most one handler may say so; the \
               only handler does without saying so. Without such a handler, pods that name none are \
               refused.",
        takes: Takes::Reload,
    },
    Key {
        name: "memory_mib",
        kind: "number, MiB",
        unset: None,
        text: "Memory for the containers of a pod without a memory limit, and for the containers \
               without a limit in a pod that has one.",
        takes: Takes::Reload,
    },
    Key {
        name: "memory_max_mib",
        kind: "number, MiB",
        unset: Some(("4096", "the memory of the node")),
        text: "Most memory of one pod's VM, its overhead included. A pod that needs more is refused.",
        takes: Takes::Reload,
    },
    Key {
        name: "vcpus_max",
        kind: "number, 1 to 64",
        unset: Some(("8", "the number of the node's CPUs")),
        text: "Most vCPUs of one pod's VM.",
        takes: Takes::Reload,
    },
    Key {
        name: "scratch_mib",
        kind: "number, MiB",
        unset: None,
        text: "Size of a pod's scratch disk, which holds what containers write. The disk is a sparse \
               file in `paths.state`.",
        takes: Takes::Reload,
    },
    Key {
        name: "scratch_sum_mib",
        kind: "number, MiB",
        unset: Some(("65536", "no bound")),
        text: "Most that the scratch disks of all of the handler's pods come to. A pod beyond that is refused until another \
               one has ended.",
        takes: Takes::Reload,
    },
    Key {
        name: "writable_layer_mib",
        kind: "number, MiB",
        unset: Some(("1024", "the pod's scratch disk")),
        text: "Most that one container's writable layer takes of the scratch disk. A program that writes more gets \
               EDQUOT.",
        takes: Takes::Reload,
    },
    Key {
        name: "share_all_volumes",
        kind: "boolean",
        unset: None,
        text: "Whether pods reach every volume on the node. Otherwise a VM keeps the pod's emptyDirs itself, \
               where programs of the node do not see their files, and copies of its ConfigMaps, Secrets and \
               their like.",
        takes: Takes::Reload,
    },
    Key {
        name: "volume_cache",
        kind: "`none`, `auto` or `always`",
        unset: None,
        text: "Which of a node's files guests keep in their own memory, for volumes that they reach on the node. `none`: \
               nothing but what programs map, so that each read and write goes to the node. `auto`: what files hold, as \
               long as their sizes and times are the same, which each read asks for. `always`: names and attributes too, for volumes that nobody but the \
               pod changes.",
        takes: Takes::Reload,
    },
    Key {
        name: "host_sockets",
        kind: "list of paths",
        unset: None,
        text: "Unix sockets of the node that containers may reach, for streams alone: those that a container mounts, or \
               that lie in a directory which it mounts. Who connects is a process in the pod's cgroup, with the user \
               and groups that the pod names in numbers, else nobody. At most sixteen; a pod that was started \
               while there was none reaches none.",
        takes: Takes::Reload,
    },
    Key {
        name: "kernel",
        kind: "`small` or `full`",
        unset: None,
        text: "Kernel of the pods' guests. `small` boots fastest and takes the least memory; `full` has what a \
               distribution's kernel has besides, for images that mount network shares, load legacy packet \
               filters or look into the kernel.",
        takes: Takes::Reload,
    },
    Key {
        name: "template",
        kind: "`off`, `namespace` or `node`",
        unset: None,
        text: "Which pods start from one VM that was booted before and saved, rather than boot. They start sooner, and take less \
               memory together; they have in common what the kernel drew at that boot, and read the same pages of memory. \
               `off`: none. `namespace`: those of one namespace. `node`: all. The first pod of a size boots, and so do others for \
               which there is no template yet.",
        takes: Takes::Reload,
    },
    Key {
        name: "spare_vms",
        kind: "number, at most 64",
        unset: None,
        text: "Most VMs that wait for pods: each has gone on from a template and is ready but for the pod's name and \
               network. As many wait as pods were asked for in the last five minutes, and one at least; none while the node \
               is short of memory. Each takes some ten MiB. Needs `template`.",
        takes: Takes::Reload,
    },
];
