//! Byte streams between containers' processes and the host, on vsock port 1025. The contract is in
//! `proto_agent`'s documentation; [`buffer`] is its state machine, [`output`], [`direct`] and [`input`] move
//! the bytes, [`grace`] says when an ended process has said all, [`forward`] connects to the pod's own ports.
//! [`crate::stream_server`] meets the host.

mod buffer;
mod direct;
mod forward;
mod grace;
mod input;
mod output;

pub(crate) use direct::{Direct, Taken};
pub(crate) use forward::Forward;
pub(crate) use input::{Input, Writer};
pub(crate) use output::Output;

use std::fmt::Debug;
use std::sync::Arc;

/// An output stream of a process.
#[derive(Clone, Debug)]
pub(crate) enum ProcessOutput {
    /// A container's, which the host may open again.
    Buffered(Arc<Output>),
    /// A command's, which it may not.
    Direct(Arc<Direct>),
}

impl ProcessOutput {
    /// Whether the host has all of it.
    pub(crate) fn finished(&self) -> bool {
        match self {
            ProcessOutput::Buffered(output) => output.finished(),
            ProcessOutput::Direct(output) => output.finished(),
        }
    }
}
