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
                text: "Directory for files kept across a restart of the node: images, the records of pods \
                       and containers, and the pods' scratch disks.",
                takes: Takes::Restart,
            },
            Key {
                name: "run",
                kind: "path",
                unset: None,
                text: "Directory for files needed only until the node restarts: sockets, and one directory \
                       for each pod. The path has at most 64 bytes, because sockets below it must fit into a \
                       socket address.",
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
                text: "Program of the VMM. Each pod's VM runs in one.",
                takes: Takes::Restart,
            },
            Key {
                name: "guest_image",
                kind: "path",
                unset: None,
                text: "Directory of the guest's files. `make build` makes `vmlinux`, `root.erofs`, \
                       `scratch.ext4` and `volume.ext4`. `make full-kernel` makes `vmlinux-full`.",
                takes: Takes::Restart,
            },
        ],
    },
    Section {
        name: "isolation",
        repeated: false,
        text: "Isolation of pods from the node and from each other. See `docs/tenants.md` and `SECURITY.md`.",
        keys: isolation::KEYS,
    },
    Section {
        name: "cni",
        repeated: false,
        text: "Networks of pods. The files are read again for each pod, so a change in them needs neither a \
               reload nor a restart.",
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
                text: "Directory for the results of plugins. A result is kept until the pod's network is \
                       removed.",
                takes: Takes::Restart,
            },
            Key {
                name: "conf_template",
                kind: "path",
                unset: Some(("\"/etc/podvisor/cni.template\"", "no configuration is made")),
                text: "Template of a CNI configuration. When the kubelet sends the node's pod ranges, \
                       Podvisor writes the result to `10-podvisor.conflist` in `cni.conf_dir`. It writes \
                       nothing if another configuration is in use there.",
                takes: Takes::Reload,
            },
            Key {
                name: "settings",
                kind: "`replay`, `replay-or-refuse`, `warn` or `refuse`",
                unset: None,
                text: "How to treat sysctls, firewall rules and other settings that CNI plugins make in the \
                       pod's network namespace. The VM's traffic bypasses them there. `replay` repeats them \
                       in the guest where possible, and warns of the rest. `replay-or-refuse` also repeats \
                       them, but refuses a pod if any are left. `warn` repeats none and warns of all. \
                       `refuse` refuses a pod with any.",
                takes: Takes::Reload,
            },
            Key {
                name: "spare_namespaces",
                kind: "number, at most 255",
                unset: None,
                text: "Number of network namespaces created in advance, while no pod starts. At most as many \
                       VMMs are started in advance, too, jailed and without a guest: one for each pod of the \
                       last five minutes, and at least one. There are no spares while the node is short of \
                       memory.",
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
                unset: Some((
                    "\"systemd\"",
                    "that of the runtime in `upstream`, or the kubelet's own if that names none; without `upstream` `systemd` where systemd runs the node, else `cgroupfs`",
                )),
                text: "The cgroup driver reported to the kubelet (RuntimeConfig), for the kubelet to use.",
                takes: Takes::Restart,
            },
            Key {
                name: "strict",
                kind: "boolean",
                unset: None,
                text: "Refuse pods whose VMM has no cgroup of its own, or too small a one. The cgroup must \
                       allow the memory of the VM and its VMM; the error says how much is missing. With \
                       `false` the log has a warning instead. A VMM without a cgroup then stays in the \
                       daemon's, without accounting or limits. A VM too large for its cgroup gets less \
                       memory, and its containers get less than their limits.",
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
                text: "Registries accessed over plain HTTP. Loopback addresses are, too, unless they have certificates in `config_dir`.",
                takes: Takes::Reload,
            },
            Key {
                name: "config_dir",
                kind: "path",
                unset: None,
                text: "Directory of mirrors, in containerd's format: `<registry>/hosts.toml`, or \
                       `_default/hosts.toml` for all others. The directory may be missing. The files are \
                       read at each pull.",
                takes: Takes::Reload,
            },
            Key {
                name: "pinned",
                kind: "list of names",
                unset: None,
                text: "Images that the kubelet does not remove when it clears the disk. They are not pulled \
                       in advance. A `*` after the beginning of a full name matches any end: \
                       `registry.k8s.io/pause:*`.",
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
                text: "Address of the server. Port 0 is any free port. The kubelet gets URLs with this \
                       address, so it must be an address of a host. The kubelet is the client, so loopback \
                       is enough.",
                takes: Takes::Restart,
            },
            Key {
                name: "certificate",
                kind: "path",
                unset: Some(("\"/etc/podvisor/tls.crt\"", "plain HTTP")),
                text: "Certificate chain in PEM for TLS. The certificate must have the address as an IP \
                       subject alternative name. The node's system must trust its authority. Certificate and \
                       key are set together, and read again when the files change.",
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
        text: "Metrics for Prometheus: of the daemon at `/metrics`, of pods and containers at \
               `/metrics/cadvisor`.",
        keys: &[Key {
            name: "address",
            kind: "`address:port`",
            unset: Some(("\"127.0.0.1:9134\"", "nothing is served")),
            text: "Address of the server. It speaks plain HTTP and accepts every client. The metrics contain \
                   names of pods, namespaces and images.",
            takes: Takes::Reload,
        }],
    },
    Section {
        name: "traces",
        repeated: false,
        text: "Spans of CRI calls for an OpenTelemetry collector. `docs/traces.md` describes them.",
        keys: &[
            Key {
                name: "endpoint",
                kind: "`http://host:port`",
                unset: Some(("\"http://127.0.0.1:4317\"", "nothing is traced")),
                text: "The collector's address for OTLP over gRPC, in plaintext. The spans contain names of \
                       pods, namespaces and images.",
                takes: Takes::Restart,
            },
            Key {
                name: "sample",
                kind: "number, 0 to 1",
                unset: None,
                text: "Share of calls traced if the caller has no trace of its own. If it has one, the \
                       caller's decision holds.",
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
                text: "A level (`off`, `error`, `warn`, `info`, `debug` or `trace`), and others for single \
                       modules, as in `info,runtime_pod=debug`. The environment variable `PODVISOR_LOG` \
                       overrides this key.",
                takes: Takes::Reload,
            },
            Key {
                name: "format",
                kind: "`text` or `json`",
                unset: None,
                text: "Format of a line: text for people, or a JSON object that includes the line's spans.",
                takes: Takes::Restart,
            },
        ],
    },
    Section {
        name: "nri",
        repeated: false,
        text: "Plugins of the node, by the Node Resource Interface. They are notified of pods in VMs, and \
               can change their containers. Pods of another runtime keep that runtime's plugins.",
        keys: nri::KEYS,
    },
    Section {
        name: "upstream",
        repeated: false,
        text: "Another runtime on the node, containerd or CRI-O. It gets the pods of its handlers, with \
               every later call about them. So pods of the node itself can run, with the node's network and \
               all of its devices.",
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
                text: "Handlers of the other runtime, by its own names for them.",
                takes: Takes::Restart,
            },
            Key {
                name: "unnamed_pods",
                kind: "`none`, `node` or `all`",
                unset: None,
                text: "Pods that name no handler and go to the other runtime's default handler. `none`: no \
                       pods. `node`: pods that ask for the node's network, PID or IPC namespace. `all`: all \
                       of them.",
                takes: Takes::Restart,
            },
        ],
    },
    Section {
        name: "handler",
        repeated: true,
        text: "A runtime handler, named by a RuntimeClass. The table may be repeated, for at most 128 \
               handlers. Without any table there is one handler, `podvisor`, with the defaults below.",
        keys: handler::KEYS,
    },
];
