//! The contract between the daemon and the agent: RPCs (ttrpc), stream frames, ports and guest paths.
//!
//! Four ways in and out of a guest, all over virtio-vsock:
//!
//! | who dials | port | what it carries |
//! |---|---|---|
//! | guest | host [`port::READY`] | one [`AgentReady`](agent::AgentReady) frame, once, when the agent serves; in a template also before, when it waits |
//! | host | guest [`port::WAKE`] | one [`Wake`](agent::Wake) frame, to a guest that was restored from a template |
//! | guest | host [`port::HOST_SOCKET`] | a token of [`HOST_SOCKET_TOKEN_BYTES`] bytes, then raw bytes to and from a socket of the node |
//! | host | guest [`port::RPC`] | ttrpc, service `podvisor.agent.v1.Agent` |
//! | host | guest [`port::STREAM`] | a [`StreamOpen`](agent::StreamOpen) frame, a [`StreamOpened`](agent::StreamOpened) frame back, then raw bytes |
//!
//! A *frame* is a `u32` little-endian length followed by that many bytes of protobuf, at most
//! [`FRAME_BYTES_MAX`] ([`frame`]). A refused call carries its reason in the ttrpc status ([`failure`]). Each side
//! states its protocol in its first message ([`version`]).
//!
//! Output of a container's first process (stdout, stderr): guest to host raw bytes from
//! `StreamOpen.offset` on; host to guest a sequence of `u64` little-endian acknowledgements, each the
//! absolute number of bytes of this stream that are durable on the host. The agent keeps what is not
//! acknowledged (at most [`UNACKNOWLEDGED_BYTES_MAX`]) and stops reading the process's pipe when that is
//! full. After the last byte it shuts its sending side down; it forgets the stream when all is acknowledged.
//!
//! Output of a command (an exec): guest to host raw bytes, once; host to guest nothing. Bytes that the host does
//! not take stay in the command's pipe. After the last byte the agent shuts its sending side down; where the host
//! closes before, the agent ends the command.
//!
//! Stdin: host to guest, a sequence of [`record`]s: bytes, sizes of a terminal, the end of file. Several
//! connections may write to one stdin.
//!
//! Sockets of the node: the agent listens in the container's place, and opens one stream to the host for each connection. Any
//! process of a container may dial the host as well, so that the stream begins with the token that
//! [`HostSocket`](agent::HostSocket) has; the host closes one that begins otherwise. Then raw bytes go both ways, and each
//! side's half-close is passed on.
//!
//! Port-forward: raw bytes both ways between the host and a port of the pod's loopback; each side's
//! half-close is passed on.

#![forbid(unsafe_code)]

pub mod failure;
pub mod frame;
pub mod record;
pub mod version;

/// Messages.
#[allow(warnings, clippy::all, clippy::pedantic)]
pub mod agent {
    include!(concat!(env!("OUT_DIR"), "/agent.rs"));
}

/// The ttrpc service and client.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unused_imports,
    clippy::all,
    clippy::pedantic,
    rustdoc::all
)]
pub mod agent_ttrpc {
    // The generated code names the messages' module as its sibling.
    use crate::agent;
    include!(concat!(env!("OUT_DIR"), "/agent_ttrpc.rs"));
}

/// Longest frame, in bytes: a stream header is far below it, and a peer cannot make us allocate more.
pub const FRAME_BYTES_MAX: u32 = 64 * 1024;

/// Output that the agent keeps for one stream until the host has acknowledged it, in bytes.
pub const UNACKNOWLEDGED_BYTES_MAX: usize = 256 * 1024;

/// Argument of an agent that is to wait in a template, after "--" on the kernel's command line.
pub const TEMPLATE_ARGUMENT: &str = "template";

/// Least bytes of [`Wake::random_seed`](agent::Wake::random_seed): the state of the kernel's generator is as long.
pub const WAKE_SEED_BYTES_MIN: usize = 32;

/// Bytes of the token by which the host knows a connection's container and socket: too many to be guessed.
pub const HOST_SOCKET_TOKEN_BYTES: usize = 32;

/// Most sockets of the node in one container: more than any operator allows of them, mounted several times.
pub const HOST_SOCKETS_MAX: usize = 64;

/// Tag of the virtio-fs device that serves the pod's shared directory.
pub const SHARE_TAG: &str = "podvisor";

/// vsock ports.
pub mod port {
    /// Host side: the guest dials it when the agent serves.
    pub const READY: u32 = 1024;
    /// Host side: the agent dials it for each connection of a program to a socket of the node.
    pub const HOST_SOCKET: u32 = 1026;
    /// Guest side: ttrpc.
    pub const RPC: u32 = 1024;
    /// Guest side: byte streams.
    pub const STREAM: u32 = 1025;
    /// Guest side: the only port that an agent in a template serves.
    pub const WAKE: u32 = 1026;
}

/// Paths inside the guest that appear in OCI specs made on the host.
pub mod guest_path {
    /// Bind-mount source for `/etc/resolv.conf`.
    pub const RESOLV_CONF: &str = "/run/podvisor/pod/resolv.conf";
    /// Bind-mount source for `/etc/hosts`.
    pub const HOSTS: &str = "/run/podvisor/pod/hosts";
    /// Bind-mount source for `/etc/hostname`.
    pub const HOSTNAME: &str = "/run/podvisor/pod/hostname";
    /// Bind-mount source for `/dev/shm`: one tmpfs for the whole pod.
    pub const SHM: &str = "/run/podvisor/pod/shm";
    /// Mount point of the pod's shared directory, with [`SHARE_TAG`](crate::SHARE_TAG), once a container
    /// uses it.
    pub const SHARED: &str = "/run/podvisor/shared";
    /// The PID namespace that containers share when the pod asks for one.
    pub const POD_PID_NAMESPACE: &str = "/run/podvisor/pod/pid";
    /// Bind-mount sources below this path stand for image volumes; the agent replaces them by the path of
    /// the mounted image ([`ImageVolume`](crate::agent::ImageVolume)). The path itself is empty.
    pub const IMAGE_VOLUMES: &str = "/run/podvisor/image-volumes";
    /// Bind-mount sources below this path stand for volumes that the guest keeps itself; the agent replaces them by the
    /// volume's place ([`GuestVolume`](crate::agent::GuestVolume)).
    pub const GUEST_VOLUMES: &str = "/run/podvisor/guest-volumes";
    /// Bind-mount sources below this path stand for volumes that the container's image declares; the agent replaces them
    /// by the path of a directory that it makes ([`DeclaredVolume`](crate::agent::DeclaredVolume)).
    pub const DECLARED_VOLUMES: &str = "/run/podvisor/declared-volumes";
    /// Bind-mount sources below this path stand for sockets of the node; the agent replaces them by the path of a socket that
    /// it listens on ([`HostSocket`](crate::agent::HostSocket)).
    pub const HOST_SOCKETS: &str = "/run/podvisor/host-sockets";
    /// Parent of every container's cgroup; a spec's `cgroupsPath` is `CGROUP_PARENT/<container id>`.
    pub const CGROUP_PARENT: &str = "/pod";
}
