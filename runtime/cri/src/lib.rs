//! The gRPC edge: CRI in, pods and images out. One file per RPC, each of them *convert, forward, convert
//! back*. Pods themselves live in `runtime/pod`.
//!
//! ```text
//!   runtime_service.rs ─┐                     ┌─ sandbox/<verb>.rs    ─┐
//!   image_service.rs   ─┴─> gate.rs ──────────┼─ container/<verb>.rs   ├─> Pods, Images
//!     (one line per RPC)    (log, code)       ├─ image/<verb>.rs       │
//!                                             ├─ stats/<verb>.rs       │
//!                                             └─ runtime/<verb>.rs    ─┘
//! ```
//!
//! In front of both services, `traced.rs` makes each call's span. If the node has another runtime behind
//! ours, `upstream/` forwards its calls there.
//!
//! Beside CRI the socket has the daemon's own service for images, `transfers/`: pulls and imports with their
//! progress.
//!
//! No other crate knows CRI types. This crate makes no decision about a pod, and keeps no state except the
//! other runtime's last lists.

#![forbid(unsafe_code)]

mod authority;
mod blocking;
mod container;
mod convert;
mod deadline;
mod encoded;
mod error;
mod events;
mod exposition;
mod feed;
#[doc(hidden)]
pub mod fuzz;
mod gate;
mod ids;
mod image;
mod image_service;
mod metrics;
mod nri;
mod requests;
mod runtime;
mod runtime_service;
mod sandbox;
mod scratch_disk;
mod serve;
mod sessions;
mod stats;
mod stream;
mod subject;
mod traced;
mod transfers;
mod upstream;
mod v1alpha2;

pub use error::ERROR_DOMAIN;
pub use exposition::{CONTENT_TYPE, Exposition};
pub use nri::{NriPlugins, UnsupportedAdjustments};
pub use runtime::status::{CONFIGURATION, CgroupDriver, ConfigurationView, Node, NodeNetwork};
pub use runtime::watchdog::Watchdog;
pub use serve::{Cri, ServeError, serve};
pub use upstream::{UnnamedPods, UpstreamConfig, UpstreamError};
