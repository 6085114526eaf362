//! Traces: the spans of calls (`runtime-spans`) on their way to a collector of OpenTelemetry's, and the caller's context on its
//! way in and out.
//!
//! ```text
//!   headers ── context.rs ──► parent of the call's span        span ends ──► queue.rs ──► export.rs ──OTLP──► collector
//!   headers ◄─ propagate.rs ─ the current span                               (bounded)    (a task)
//! ```
//!
//! A span that cannot be sent is dropped and counted. Nothing here makes a call wait, and nothing a collector does or fails to do
//! reaches a call. Where no collector is configured, [`Traces`] is not made, no layer is there, and no span is.

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
