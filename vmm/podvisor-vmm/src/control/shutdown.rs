//! Shutdown: answered, then the loop ends the VM and reports it.

use proto_vmm::{Response, StopReason};

use super::{Answer, Next};

pub(super) fn shutdown() -> (Answer, Next) {
    (Ok(Response::ShuttingDown), Next::Stop(StopReason::Requested))
}
