//! The contract between the daemon and the agent: RPCs (ttrpc), stream frames, ports and guest paths.
//!
//! Five ways in and out of a guest, all over virtio-vsock:
//!
//! | dialled by | port | content |
//! |---|---|---|
//! | guest | host [`port::READY`] | one [`AgentReady`] frame when the agent serves |
//! | host | guest [`port::WAKE`] | one [`Wake`] frame, to a guest restored from a template |
//! | guest | host [`port::HOST_SOCKET`] | a token, then raw bytes to and from a socket of the node |
//! | host | guest [`port::RPC`] | ttrpc, service `podvisor.agent.v1.Agent` |
//! | host | guest [`port::STREAM`] | a [`StreamOpen`] frame, a [`StreamOpened`] frame back, then raw bytes |
//!
//! In a template the agent also sends an [`AgentReady`] frame earlier, when it waits to be woken. A token has
//! [`HOST_SOCKET_TOKEN_BYTES`] bytes.
//!
//! A *frame* is a `u32` little-endian length followed by that many bytes of protobuf, at most
//! [`FRAME_BYTES_MAX`] ([`frame`]). A refused call carries its reason in the ttrpc status ([`failure`]). Each
//! side states its protocol in its first message ([`version`]).
//!
//! Output of a container's first process (stdout, stderr): the guest sends raw bytes from `StreamOpen.offset`
//! on. The host sends a sequence of `u64` little-endian acknowledgements: each is the absolute number of this
//! stream's bytes durable on the host. The agent keeps unacknowledged bytes (at most
//! [`UNACKNOWLEDGED_BYTES_MAX`]) and stops reading the process's pipe when its buffer is full. After the last
//! byte it shuts down its sending side. It forgets the stream when all is acknowledged.
//!
//! Output of a command (an exec): the guest sends raw bytes, once, and the host sends nothing. Bytes not
//! taken by the host stay in the command's pipe. After the last byte the agent shuts down its sending side.
//! If the host closes before, the agent ends the command.
//!
//! Stdin: the host sends a sequence of [`record`]s: bytes, sizes of a terminal, the end of file. Several
//! connections may write to one stdin.
//!
//! Sockets of the node: the agent listens in the container's place, and opens one stream to the host for each
//! connection. Any process of a container may dial the host, too. Therefore the stream must begin with the
//! token from [`HostSocket`](agent::HostSocket); otherwise the host closes it. Then raw bytes go both ways,
//! and each side's half-close is passed on.
//!
//! Port-forward: raw bytes both ways between the host and a port of the pod's loopback. Each side's
//! half-close is passed on.
//!
//! [`AgentReady`]: agent::AgentReady
//! [`StreamOpen`]: agent::StreamOpen
//! [`StreamOpened`]: agent::StreamOpened
//! [`Wake`]: agent::Wake

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
    // The generated code expects the messages' module as its sibling.
    use crate::agent;
    include!(concat!(env!("OUT_DIR"), "/agent_ttrpc.rs"));
}

/// Most bytes of cache that a guest gives back at one request. It delays the guest's programs meanwhile.
pub const RECLAIMED_BYTES_MAX: u64 = 512 << 20;

/// Longest frame, in bytes. A stream header is far shorter, and a peer cannot make the reader allocate more.
pub const FRAME_BYTES_MAX: u32 = 64 * 1024;

/// Longest unacknowledged output kept by the agent for one stream, in bytes.
pub const UNACKNOWLEDGED_BYTES_MAX: usize = 256 * 1024;

/// Argument of an agent in a template, after "--" on the kernel's command line.
pub const TEMPLATE_ARGUMENT: &str = "template";

/// Minimum bytes of [`Wake::random_seed`](agent::Wake::random_seed), the size of the state of the kernel's
/// generator.
pub const WAKE_SEED_BYTES_MIN: usize = 32;

/// Bytes of the token of a container's socket, too many to be guessed. The host identifies the connection by
/// it.
pub const HOST_SOCKET_TOKEN_BYTES: usize = 32;

/// Most sockets of the node in one container: more than the allowed ones of any operator, mounted several
/// times.
pub const HOST_SOCKETS_MAX: usize = 64;

/// Tag of the virtio-fs device for the pod's shared directory.
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
    /// Guest side: the only port served by an agent in a template.
    pub const WAKE: u32 = 1026;
}

/// Guest paths in OCI specs made on the host.
pub mod guest_path {
    /// Bind-mount source for `/etc/resolv.conf`.
    pub const RESOLV_CONF: &str = "/run/podvisor/pod/resolv.conf";
    /// Bind-mount source for `/etc/hosts`.
    pub const HOSTS: &str = "/run/podvisor/pod/hosts";
    /// Bind-mount source for `/etc/hostname`.
    pub const HOSTNAME: &str = "/run/podvisor/pod/hostname";
    /// Bind-mount source for `/dev/shm`: one tmpfs for the whole pod.
    pub const SHM: &str = "/run/podvisor/pod/shm";
    /// Mount point of the pod's shared directory, with [`SHARE_TAG`](crate::SHARE_TAG), once a container uses
    /// it.
    pub const SHARED: &str = "/run/podvisor/shared";
    /// The PID namespace shared by the containers if the pod asks for it.
    pub const POD_PID_NAMESPACE: &str = "/run/podvisor/pod/pid";
    /// Bind-mount sources below this path stand for image volumes. The agent replaces them with the path of
    /// the mounted image ([`ImageVolume`](crate::agent::ImageVolume)). The path itself is empty.
    pub const IMAGE_VOLUMES: &str = "/run/podvisor/image-volumes";
    /// Bind-mount sources below this path stand for the guest's own volumes. The agent replaces them with the
    /// volume's path ([`GuestVolume`](crate::agent::GuestVolume)).
    pub const GUEST_VOLUMES: &str = "/run/podvisor/guest-volumes";
    /// Bind-mount sources below this path stand for volumes declared by the container's image. The agent
    /// makes a directory for each and replaces the source with its path
    /// ([`DeclaredVolume`](crate::agent::DeclaredVolume)).
    pub const DECLARED_VOLUMES: &str = "/run/podvisor/declared-volumes";
    /// Bind-mount sources below this path stand for sockets of the node. The agent replaces them with the
    /// path of its own listening socket ([`HostSocket`](crate::agent::HostSocket)).
    pub const HOST_SOCKETS: &str = "/run/podvisor/host-sockets";
    /// Parent of every container's cgroup. A spec's `cgroupsPath` is `CGROUP_PARENT/<container id>`.
    pub const CGROUP_PARENT: &str = "/pod";
}
