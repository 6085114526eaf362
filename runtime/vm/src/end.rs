//! The end of a VMM: its process, and the report of one that left none.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use proto_vmm::{StopReason, StopReport};
use tokio::process::Child;

use crate::VmError;
use crate::process::Process;

/// How long the stop report may come after the process has ended. The VMM sent it before, so that this
/// only bounds a connection that another daemon took over.
pub(crate) const REPORT_PATIENCE: Duration = Duration::from_millis(500);

/// Waits for the process's end; a child of ours is reaped and gives its status.
pub(crate) async fn wait(process: &Process, child: Option<Child>) -> Option<ExitStatus> {
    match child {
        Some(mut child) => child.wait().await.ok(),
        None => {
            process.ended().await;
            None
        }
    }
}

/// The end of a VMM that was lost because it has ended, in the place of the error that this looked like.
pub(crate) async fn ended_or(error: VmError, child: &mut Child) -> VmError {
    if !matches!(error, VmError::Lost { .. } | VmError::Send { .. } | VmError::Connect { .. }) {
        return error;
    }
    match tokio::time::timeout(REPORT_PATIENCE, child.wait()).await {
        Ok(Ok(status)) => VmError::Ended { reason: unreported(Some(status)).reason },
        _ => error,
    }
}

/// The report of a VMM that ended without one.
pub(crate) fn unreported(status: Option<ExitStatus>) -> StopReport {
    let message = match status {
        Some(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => format!("the VMM was killed by signal {signal}"),
            (None, code) => format!("the VMM ended without a report, exit status {}", code.unwrap_or(-1)),
        },
        None => "the VMM ended without a report".to_owned(),
    };
    StopReport {
        reason: StopReason::Vmm { message },
        registers: None,
        console: String::new(),
        exits: Default::default(),
    }
}
