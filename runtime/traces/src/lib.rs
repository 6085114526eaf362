//! Traces: the spans of calls (`runtime-spans`) on their way to an OpenTelemetry collector, and the caller's
//! context on its way in and out.
//!
//! ```text
//!   headers ── context.rs ──► parent of a call's span    span ends ──► queue.rs ──► export.rs ──► collector
//!   headers ◄─ propagate.rs ─ the current span                         (bounded)    (a task)  OTLP
//! ```
//!
//! A span that cannot be sent is dropped and counted. Nothing here delays a call, and a collector's failure
//! never affects one. Without a configured collector, there is no [`Traces`], no layer and no span.

#![forbid(unsafe_code)]

mod collector;
mod context;
mod counters;
mod endpoint;
mod export;
#[doc(hidden)]
pub mod fuzz;
mod propagate;
mod queue;
#[cfg(any(test, feature = "recorder"))]
pub mod recorder;
mod sampler;
mod traces;

pub use endpoint::{Endpoint, EndpointError};
pub use export::Exporting;
pub use propagate::{adopt, inject};
pub use traces::{Traces, TracesConfig};
