//! StartContainer: releases a held container, and waits until its program is executed or refused.

use crate::containers::{ContainerError, Phase};
use crate::launcher::Deadline;
use crate::pod::Pod;

/// Starts the container. A container is refused unless it is held.
pub(crate) async fn start(pod: &Pod, id: &str) -> Result<(), ContainerError> {
    let container = pod.containers.get(id)?;
    pod.bring_up.wait().await;
    let reports = {
        let mut phase = container.phase();
        // The phase owns its values, so it is taken out and put back.
        match std::mem::replace(&mut *phase, Phase::Creating) {
            Phase::Created { first, reports } => {
                *phase = Phase::Running { first };
                reports
            }
            other => {
                let error = container.wrong_phase(&other);
                *phase = other;
                return Err(error);
            }
        }
    };
    Ok(reports.start(Deadline::of_call()).await?)
}
