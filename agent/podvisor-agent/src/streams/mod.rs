//! Byte streams between containers' processes and the host. The contract is in [`proto_agent`]'s
//! documentation. [`buffer`] keeps its states, [`output`], [`direct`] and [`input`] move the bytes, [`grace`]
//! decides when an ended process's output is complete, [`terminal`] keeps a terminal open until then,
//! [`pipe_end`] accesses pipes, and [`forward`] connects
//! to the pod's own ports. [`crate::stream_server`] serves the host's connections.

mod buffer;
mod direct;
mod forward;
mod grace;
mod input;
mod output;
mod pipe_end;
mod terminal;

pub(crate) use direct::{Direct, Taken};
pub(crate) use forward::Forward;
pub(crate) use input::{Input, Writer};
pub(crate) use output::Output;
pub(crate) use terminal::hold as hold_terminal;

use std::fmt::Debug;
use std::sync::Arc;

/// An output stream of a process.
#[derive(Clone, Debug)]
pub(crate) enum ProcessOutput {
    /// A container's output. The host may reopen it.
    Buffered(Arc<Output>),
    /// A command's output. The host opens it once.
    Direct(Arc<Direct>),
}

impl ProcessOutput {
    /// Waits until a host has opened a command's output. A container's output may be opened at any time, so
    /// it returns at once.
    pub(crate) async fn claimed(&self) {
        match self {
            ProcessOutput::Buffered(_) => {}
            ProcessOutput::Direct(output) => output.taken().await,
        }
    }

    /// Returns true if the host has all of the output.
    pub(crate) fn finished(&self) -> bool {
        match self {
            ProcessOutput::Buffered(output) => output.finished(),
            ProcessOutput::Direct(output) => output.finished(),
        }
    }
}
