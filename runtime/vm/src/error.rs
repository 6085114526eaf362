//! The errors between the daemon and a VMM.

use std::path::PathBuf;

use proto_vmm::{PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, PacketError, StopReason};

/// A VM could not be made or driven.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum VmError {
    #[error("cannot make the socket {}", path.display())]
    Bind { path: PathBuf, source: std::io::Error },
    #[error("cannot start {}", binary.display())]
    Start { binary: PathBuf, source: std::io::Error },
    #[error("cannot put the VMM into the cgroup {}", path.display())]
    Cgroup { path: PathBuf, source: std::io::Error },
    #[error("process {pid} is not the recorded VMM")]
    AnotherProcess { pid: u32 },
    #[error("cannot watch process {pid}")]
    Watch { pid: u32, source: std::io::Error },
    #[error("cannot reach the VMM at {}", path.display())]
    Connect { path: PathBuf, source: std::io::Error },
    #[error("cannot duplicate a descriptor for the VMM")]
    Duplicate(#[source] std::io::Error),
    #[error("cannot send {request} to the VMM")]
    Send { request: &'static str, source: PacketError },
    #[error("the VMM refused {request}: {message}")]
    Refused { request: &'static str, message: String },
    #[error("the VMM did not answer {request} in time")]
    Deadline { request: &'static str },
    #[error("the VMM's answer to {request} is not one")]
    Confused { request: &'static str },
    #[error(
        "the VMM speaks version {version} of the protocol, and this daemon {PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION}"
    )]
    Version { version: u32 },
    #[error(
        "the pod's VMM is of {} and cannot plug the {device}: delete the pod to recreate it",
        if release.is_empty() { "an earlier release".to_owned() } else { format!("release {release}") }
    )]
    Old { release: String, device: &'static str },
    #[error(
        "the VMM is of {} and has no templates",
        if release.is_empty() { "an earlier release".to_owned() } else { format!("release {release}") }
    )]
    NoTemplates { release: String },
    #[error("the connection to the VMM was lost during {request}")]
    Lost { request: &'static str },
    #[error("the VM has ended: {reason:?}")]
    Ended { reason: StopReason },
    #[error("the guest opened no stream to port {port} in time")]
    NoStream { port: u32 },
    #[error("cannot use the guest's stream to port {port}")]
    Stream { port: u32, source: std::io::Error },
    #[error("cannot bind process {pid} to CPUs {cpus:?}")]
    Pin { pid: u32, cpus: Vec<u32>, source: std::io::Error },
    #[error("cannot set the OOM score of process {pid} to {score}")]
    OomScore { pid: u32, score: i32, source: std::io::Error },
    #[error("cannot end process {pid}")]
    Kill { pid: u32, source: std::io::Error },
}
