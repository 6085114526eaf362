//! Pods: one driver task each.
//!
//! [`Pods`] is the handle that the gRPC edge and the command line hold.

#![forbid(unsafe_code)]

mod config;
mod error;
mod pods;
mod view;

pub use config::PodsConfig;
pub use error::{PodError, PodErrorKind};
pub use pods::Pods;
pub use view::{
    ContainerState, ContainerView, ExecOutput, GuestMemory, Phase, PodState, PodView, User, VmReport,
};
