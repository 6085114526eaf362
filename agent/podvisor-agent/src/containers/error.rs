//! Why a container could not be created, changed or removed. [`crate::rpc`] turns these errors into statuses.

use agent_container::devices::DevicesError;
use agent_container::image_file::ImageFileError;
use agent_container::launch::Failure;
use agent_container::limits::LimitError;
use agent_container::spec::SpecError;
use agent_container::users::UserError;
use proto_agent::{HOST_SOCKET_TOKEN_BYTES, HOST_SOCKETS_MAX};
use proto_seccomp::FilterError;

use crate::disk_volumes::DiskVolumeError;
use crate::host_work::HostWorkError;
use crate::images::ImageError;
use crate::memory_volumes::MemoryVolumeError;
use crate::published_volumes::PublishedVolumeError;
use crate::shared::SharedError;
use crate::shared_places::PlaceError;
use crate::slots::SlotError;

/// Why something could not be done to a container.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerError {
    #[error("`{0}` is no valid id")]
    InvalidId(String),
    #[error("container {0} is there already")]
    Exists(String),
    #[error("exec {0} is there already")]
    ExecExists(String),
    #[error("there is no container {0}")]
    NoContainer(String),
    #[error("container {container} has no exec {exec}")]
    NoExec { container: String, exec: String },
    #[error("container {id} is {phase}")]
    Phase { id: String, phase: &'static str },
    #[error("the pod has {0} containers, and can have no more")]
    TooManyContainers(usize),
    #[error("container {id} has {count} execs already, with an exit or output not taken by the host")]
    TooManyExecs { id: String, count: usize },
    #[error("cannot {what} of container {id}")]
    Io { what: &'static str, id: String, source: std::io::Error },
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    MemoryVolume(#[from] MemoryVolumeError),
    #[error(transparent)]
    DiskVolume(#[from] DiskVolumeError),
    #[error(transparent)]
    PublishedVolume(#[from] PublishedVolumeError),
    #[error(transparent)]
    HostSocket(#[from] HostSocketError),
    #[error(transparent)]
    Shared(#[from] SharedError),
    #[error(transparent)]
    SharedPlace(#[from] PlaceError),
    #[error(transparent)]
    HostWork(#[from] HostWorkError),
    #[error(transparent)]
    ImageFile(#[from] ImageFileError),
    #[error(transparent)]
    User(#[from] UserError),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Devices(#[from] DevicesError),
    #[error("user {uid} or group {gid} is not mapped in the pod's user namespace")]
    NotMapped { uid: u32, gid: u32 },
    #[error("cannot join the PID namespace of the target container")]
    Target(#[source] Box<ContainerError>),
    #[error("the filter of system calls has {0} bytes, and 32768 of whole instructions are the most")]
    FilterBytes(usize),
    #[error("cannot compile the seccomp profile")]
    Filter(#[from] FilterError),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Launch(#[from] Failure),
}

impl ContainerError {
    /// The failure to remove the volumes of a container.
    pub(crate) fn volumes_of(id: &str) -> impl FnOnce(std::io::Error) -> ContainerError {
        let id = id.to_owned();
        move |source| ContainerError::Io { what: "remove the volumes", id, source }
    }
}

/// Why the node's sockets cannot be offered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostSocketError {
    #[error("a container has at most {HOST_SOCKETS_MAX} sockets of the node, not {0}")]
    TooMany(usize),
    #[error("the token of a socket of the node has {HOST_SOCKET_TOKEN_BYTES} bytes, not {0}")]
    Token(usize),
}

/// Why an image volume cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("the image cannot be mounted")]
    Image(#[from] ImageError),
    #[error("cannot find the sub path {sub_path:?} in the image")]
    SubPath { sub_path: String, source: std::io::Error },
    #[error("the owners of the image's files cannot be mapped")]
    Map(#[source] std::io::Error),
}
