//! Byte streams between containers' processes and the host, on vsock port 1025. The contract is in
//! `proto_agent`'s documentation; [`buffer`] is its state machine, [`output`] and [`input`] move the
//! bytes, [`accept`] meets the host, [`port`] connects to the pod's own ports.

pub(crate) mod accept;
pub(crate) mod buffer;
pub(crate) mod input;
pub(crate) mod output;
mod port;

pub(crate) use input::{Input, Writer};
pub(crate) use output::Output;

use std::fmt::Debug;
use std::sync::Arc;

/// A stream that a process has.
#[derive(Debug)]
pub(crate) enum ProcessStream {
    Output(Arc<Output>),
    Input(Writer),
}
