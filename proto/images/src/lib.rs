//! The daemon's own service for images on the wire, beside CRI on the same socket: pulls and imports with
//! their progress. CRI has neither. Generated from `proto/images.proto`. No logic lives here: `runtime/cri`
//! serves it, and the command line calls it.

#![forbid(unsafe_code)]

/// The first version of the service. Fields are added and never renumbered: a command may be older or newer
/// than its daemon.
pub mod v1 {
    #![allow(
        missing_docs,
        missing_debug_implementations,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        rustdoc::all
    )]
    tonic::include_proto!("podvisor.v1");
}
