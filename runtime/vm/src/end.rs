//! The end of a VMM: the end of its process, and the substitute for a missing report.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use proto_vmm::{StopReason, StopReport};
use tokio::process::Child;

use crate::VmError;
use crate::process::Process;

/// Time for the stop report to arrive after the process's end. The VMM sent it before it ended, so this is a
/// bound only for a connection taken over by another daemon.
pub(crate) const REPORT_PATIENCE: Duration = Duration::from_millis(500);

/// Waits for the process's end. A child of ours is reaped and its status returned.
pub(crate) async fn wait(process: &Process, child: Option<Child>) -> Option<ExitStatus> {
    match child {
        Some(mut child) => child.wait().await.ok(),
        None => {
            process.ended().await;
            None
        }
    }
}

/// Returns [`VmError::Ended`] if the VMM was lost because it has ended, or else the original error.
pub(crate) async fn ended_or(error: VmError, child: &mut Child) -> VmError {
    if !matches!(error, VmError::Lost { .. } | VmError::Send { .. } | VmError::Connect { .. }) {
        return error;
    }
    match tokio::time::timeout(REPORT_PATIENCE, child.wait()).await {
        Ok(Ok(status)) => VmError::Ended { reason: unreported(Some(status)).reason },
        _ => error,
    }
}

/// Returns a report for a VMM that ended without one.
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
