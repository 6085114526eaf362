//! The Container Runtime Interface on the wire: messages, clients and servers, generated from the published
//! `api.proto` (cri-api v0.36.3), except two messages in [`list_responses`]. No logic lives here. Only
//! `runtime/cri` and the command line's client may use these types.

#![forbid(unsafe_code)]

pub mod list_responses;

/// CRI v1, as of Kubernetes 1.36.
pub mod v1 {
    #![allow(
        missing_docs,
        missing_debug_implementations,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        rustdoc::all
    )]
    tonic::include_proto!("runtime.v1");
    pub use crate::list_responses::{ListContainersResponse, ListPodSandboxResponse};
}

/// CRI v1alpha2, for kubelets up to 1.25: its services over [`v1`]'s messages.
pub mod v1alpha2 {
    #![allow(
        missing_docs,
        missing_debug_implementations,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        rustdoc::all
    )]
    tonic::include_proto!("runtime.v1alpha2");
}
