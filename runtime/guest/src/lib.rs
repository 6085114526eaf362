//! Client of the agent: its RPCs and its byte streams, over the VMM's unix socket for the guest's vsock. The
//! client keeps no state about the pod, retries nothing, and trusts nothing from the guest: lengths are
//! bounded, and every call but Wait has a deadline.
//!
//! The VMM's socket takes `CONNECT <port>\n`, answers `OK <number>\n`, and is then that port's stream.

#![forbid(unsafe_code)]

mod answers;
mod connect;
mod convert;
mod error;
mod frames;
mod guest;
mod input;
mod link;
mod output;
mod process;
mod published;
mod settings;
mod text;

pub use error::{FailureReason, GuestError, RefusedCode};
pub use guest::{Guest, ready, ready_and_done, wake};
pub use input::InputStream;
pub use output::{Acknowledger, OutputReader, OutputStream};
pub use process::{ProcessExit, SignalTarget};
pub use proto_agent::agent;
pub use published::{PublishedFile, PublishedVersion};
pub use settings::ReplayedSettings;
