//! The configuration's keys: every key with its type, its default and its meaning, in one table. The order is
//! the same as in the structs of `config.rs`. `reference.rs` renders the table, and its tests compare the
//! table with the structs.

mod handler;
mod isolation;
mod key;
mod nri;

pub(crate) use key::{Key, Section, Takes};

/// The whole configuration.
pub(crate) const SECTIONS: &[Section] = &[
    Section {
        name: "paths",
        repeated: false,
        text: "Where Podvisor finds its parts and keeps its files.",
        keys: &[
            Key {
                name: "state",
                kind: "path",
                unset: None,
                text: "Directory of what outlives a restart of the node: images, the records of pods and \
                       containers, and the pods' scratch disks.",
                takes: Takes::Restart,
            },
            Key {
                name: "run",
                kind: "path",
                unset: None,
                text: "Directory of what ends with the node: sockets, and one directory for each pod. The path \
                       has at most 64 bytes, because sockets below it must fit into a socket address.",
                takes: Takes::Restart,
            },
            Key {
                name: "socket",
                kind: "path",
                unset: Some(("\"/run/podvisor/podvisor.sock\"", "`podvisor.sock` in `paths.run`")),
                text: "The CRI socket. Its mode is 0660.",
                takes: Takes::Restart,
            },
            Key {
                name: "vmm",
                kind: "path",
                unset: Some(("\"/usr/bin/podvisor-vmm\"", "`podvisor-vmm` in the directory of `podvisor`")),
                text: "The program that runs a pod's VM.",
                takes: Takes::Restart,
            },
            Key {
                name: "guest_image",
                kind: "path",
                unset: None,
                text: "Directory of `vmlinux`, `root.erofs`, `scratch.ext4` and `volume.ext4`, which `make build` \
                       makes, and of `vmlinux-full`, which `make full-kernel` makes.",
                takes: Takes::Restart,
            },
        ],
    },
    Section {
        name: "isolation",
        repeated: false,
        text: "How far pods are kept from the node and from each other. `docs/tenants.md` and `SECURITY.md` say more.",
        keys: isolation::KEYS,
    },
    Section {
        name: "cni",
        repeated: false,
        text: "Networks of pods. The files are read again for each pod, so a change of theirs needs neither a reload nor a restart.",
        keys: &[
            Key {
                name: "conf_dir",
                kind: "path",
                unset: None,
                text: "Directory of CNI network configurations. The first valid one by name is used.",
                takes: Takes::Reload,
            },
            Key {
                name: "bin_dirs",
                kind: "list of paths",
                unset: None,
                text: "Directories of CNI plugins, searched in this order.",
                takes: Takes::Reload,
            },
            Key {
                name: "cache_dir",
                kind: "path",
                unset: None,
                text: "Directory where the results of plugins are kept until a pod's network is removed.",
                takes: Takes::Restart,
            },
            Key {
                name: "conf_template",
                kind: "path",
                unset: Some(("\"/etc/podvisor/cni.template\"", "no configuration is made")),
                text: "Template of a CNI configuration. When the kubelet sends the node's pod ranges, the result \
                       is written to `10-podvisor.conflist` in `cni.conf_dir`, unless another configuration is \
                       in use there.",
                takes: Takes::Reload,
            },
            Key {
                name: "settings",
                kind: "`replay`, `replay-or-refuse`, `warn` or `refuse`",
                unset: None,
                text: "What becomes of sysctls, packet filters and other settings that CNI plugins leave in a pod's \
                       network namespace, past which its VM's frames go. `replay` makes in the guest what can be \
                       made there and warns of the rest, `replay-or-refuse` refuses a pod with such a rest, `warn` \
                       makes nothing and warns of all, `refuse` refuses a pod with any.",
                takes: Takes::Reload,
            },
            Key {
                name: "spare_namespaces",
                kind: "number, at most 255",
                unset: None,
                text: "Network namespaces that wait for pods: made and read before, while no pod starts, so that a \
                       pod's start does neither. VMM processes wait beside them, jailed and without a guest: as many \
                       as pods took in the last five minutes, one at least, and no more than this. None waits while \
                       the node is short of memory.",
                takes: Takes::Reload,
            },
        ],
    },
    Section {
        name: "cgroup",
        repeated: false,
        text: "Cgroups of the node.",
        keys: &[
            Key {
                name: "driver",
                kind: "`systemd` or `cgroupfs`",
                unset: Some(("\"systemd\"", "`systemd` where systemd runs the node, else `cgroupfs`")),
                text: "The cgroup driver that the kubelet is asked to use (RuntimeConfig).",
                takes: Takes::Restart,
            },
            Key {
                name: "strict",
                kind: "boolean",
                unset: None,
                text: "Whether a pod is refused whose VMM cannot have a cgroup of its own, or whose cgroup allows \
                       less memory than its VM and VMM take; the error says how much is missing. Otherwise such a \
                       VMM stays in the daemon's cgroup, where nothing counts or limits it, and such a VM is made \
                       to fit, so that its containers have less than their limits. The log has a warning then.",
                takes: Takes::Reload,
            },
        ],
    },
    Section {
        name: "registries",
        repeated: false,
        text: "Image registries.",
        keys: &[
            Key {
                name: "insecure",
                kind: "list of `host[:port]`",
                unset: None,
                text: "Registries that are asked over plain HTTP. Loopback addresses always are.",
                takes: Takes::Reload,
            },
            Key {
                name: "config_dir",
                kind: "path",
                unset: None,
                text: "Directory of mirrors, as containerd has it: `<registry>/hosts.toml`, or \
                       `_default/hosts.toml` for all others. The directory may be absent. The files are read \
                       at each pull.",
                takes: Takes::Reload,
            },
            Key {
                name: "pinned",
                kind: "list of names",
                unset: None,
                text: "Images that a kubelet keeps when it clears the disk, once they are here. A `*` at the end of a \
                       whole name stands for any end: `registry.k8s.io/pause:*`.",
                takes: Takes::Reload,
            },
        ],
    },
    Section {
        name: "streaming",
        repeated: false,
        text: "The server of exec, attach and port-forward.",
        keys: &[
            Key {
                name: "address",
                kind: "`address:port`",
                unset: None,
                text: "Address that the server listens on; port 0 is any free port. The URLs that the kubelet \
                       gets name the address, so it must be an address of a host. The kubelet is the client, so \
                       loopback is enough.",
                takes: Takes::Restart,
            },
            Key {
                name: "certificate",
                kind: "path",
                unset: Some(("\"/etc/podvisor/tls.crt\"", "plain HTTP")),
                text: "Certificate chain in PEM for TLS. The certificate must have the address as an IP subject \
                       alternative name, and its authority must be among those that the node's system trusts. \
                       Certificate and key are set together, and read again when the files change.",
                takes: Takes::Restart,
            },
            Key {
                name: "key",
                kind: "path",
                unset: Some(("\"/etc/podvisor/tls.key\"", "plain HTTP")),
                text: "Private key of the certificate, in PEM.",
                takes: Takes::Restart,
            },
        ],
    },
    Section {
        name: "metrics",
        repeated: false,
        text: "Figures for Prometheus: of the daemon at `/metrics`, of pods and containers at `/metrics/cadvisor`.",
        keys: &[Key {
            name: "address",
            kind: "`address:port`",
            unset: Some(("\"127.0.0.1:9134\"", "nothing is served")),
            text: "Address that the server listens on, in plain HTTP and for anyone who reaches it: names of pods, \
                   namespaces and images are among the figures.",
            takes: Takes::Reload,
        }],
    },
    Section {
        name: "traces",
        repeated: false,
        text: "Spans of CRI calls for a collector of OpenTelemetry's; `docs/traces.md` says what is in them.",
        keys: &[
            Key {
                name: "endpoint",
                kind: "`http://host:port`",
                unset: Some(("\"http://127.0.0.1:4317\"", "nothing is traced")),
                text: "The collector's address for OTLP over gRPC, in plaintext: names of pods, namespaces and images are among \
                       the spans.",
                takes: Takes::Restart,
            },
            Key {
                name: "sample",
                kind: "number, 0 to 1",
                unset: None,
                text: "Share of the calls that is traced where the caller has no trace of its own. The decision of a caller that \
                       has one holds.",
                takes: Takes::Restart,
            },
        ],
    },
    Section {
        name: "log",
        repeated: false,
        text: "The log of the daemon and of the device plugin, on standard error.",
        keys: &[
            Key {
                name: "level",
                kind: "filter",
                unset: None,
                text: "A level, `off`, `error`, `warn`, `info`, `debug` or `trace`, and others for single modules, as in \
                       `info,runtime_pod=debug`. The environment variable `PODVISOR_LOG` comes before this key.",
                takes: Takes::Reload,
            },
            Key {
                name: "format",
                kind: "`text` or `json`",
                unset: None,
                text: "Form of a line: text for people, or a JSON object with the spans in which it was written.",
                takes: Takes::Restart,
            },
        ],
    },
    Section {
        name: "nri",
        repeated: false,
        text: "Plugins of the node, by the Node Resource Interface. They hear of pods in VMs, and change what their containers are \
               made of; the pods of another runtime keep that one's own plugins.",
        keys: nri::KEYS,
    },
    Section {
        name: "upstream",
        repeated: false,
        text: "Another runtime on the node, containerd or CRI-O. Pods of its handlers go there whole, as does every later \
               call about them, so that pods of the node itself can run: with its network, with all of its devices.",
        keys: &[
            Key {
                name: "socket",
                kind: "path",
                unset: Some(("\"/run/containerd/containerd.sock\"", "there is no other runtime")),
                text: "The other runtime's CRI socket.",
                takes: Takes::Restart,
            },
            Key {
                name: "handlers",
                kind: "list of names",
                unset: None,
                text: "Handlers that lead to the other runtime, by the names that it has for them.",
                takes: Takes::Restart,
            },
            Key {
                name: "unnamed_pods",
                kind: "`none`, `node` or `all`",
                unset: None,
                text: "Which of the pods that name no handler go to the other runtime's default handler: none of \
                       them, those that ask for the node's network, PID or IPC namespace, or all.",
                takes: Takes::Restart,
            },
        ],
    },
    Section {
        name: "handler",
        repeated: true,
        text: "A runtime handler, which a RuntimeClass names. The table may be there several times. Without any \
               table there is one handler, `podvisor`, with the defaults below.",
        keys: handler::KEYS,
    },
];
