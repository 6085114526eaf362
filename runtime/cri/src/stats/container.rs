//! ContainerStats: the usage of one container. If it has not started, or its guest does not answer, only its
//! attributes are returned. An ended container is refused, as by other runtimes.

use proto_cri::v1;
use runtime_pod::{ContainerState, ContainerView};

use super::figures::{container_figures, disk};
use crate::convert::container_stats;
use crate::error::Failure;
use crate::serve::Cri;
use crate::subject;

pub(crate) async fn container(
    cri: &Cri,
    request: v1::ContainerStatsRequest,
) -> Result<v1::ContainerStatsResponse, Failure> {
    let id = request.container_id;
    subject::container(&cri.pods, &id);
    let Some(view) = cri.pods.container(&id) else {
        return Err(Failure::NotFound { what: "container", id });
    };
    check(&view)?;
    let usages = cri.pods.usages([view.pod_id.as_str()]).await;
    let disk = disk(cri);
    let figures = usages.first().and_then(|usage| container_figures(&view, usage, &disk));
    let stats = figures.unwrap_or_else(|| container_stats(&view, None, &disk));
    Ok(v1::ContainerStatsResponse { stats: Some(stats) })
}

fn check(view: &ContainerView) -> Result<(), Failure> {
    if view.state == ContainerState::Exited { Err(Failure::Ended(view.id.clone())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::*;

    #[test]
    fn a_container_that_has_ended_has_no_stats() {
        let view = |state| ContainerView { id: "c1".into(), state, ..Default::default() };
        let refused = Status::from(check(&view(ContainerState::Exited)).unwrap_err());
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("\"c1\" has ended"), "{}", refused.message());
        for state in [ContainerState::Created, ContainerState::Running, ContainerState::Unknown] {
            check(&view(state)).unwrap();
        }
    }
}
