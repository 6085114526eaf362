//! CreateContainer: answers when the container is created in the guest, held before its first instruction.
//!
//! CDI devices are resolved here, before the container is created. Their edits become a part of its spec, and
//! its record keeps them. A container without CDI devices waits for no file.

use std::time::Duration;

use proto_cri::v1;
use runtime_blocking::Pool;
use runtime_cdi::{DeviceName, Edits, Origin, Registry};
use runtime_pod::Pods;
use runtime_spans::span;

use crate::blocking::CDI;
use crate::convert::{cdi, container_spec};
use crate::error::Failure;
use crate::subject;

/// Time limit for reading the files of CDI devices: they are small, and on the node's own disk.
const READ_WITHIN: Duration = Duration::from_secs(30);

pub(crate) async fn create(
    pods: &Pods,
    registry: &Registry,
    request: v1::CreateContainerRequest,
) -> Result<v1::CreateContainerResponse, Failure> {
    let made = pods.pod(&request.pod_sandbox_id).is_some_and(|pod| pod.spec.security.privileged);
    let may_be_privileged = may_be_privileged(request.sandbox_config.as_ref(), made);
    let config = request.config.ok_or_else(|| Failure::invalid("config is missing"))?;
    let devices = cdi::cdi_devices(&config)?;
    let mut spec = container_spec(config)?;
    if spec.security.privileged && !may_be_privileged {
        return Err(Failure::invalid(
            "security_context.privileged: is set, and the pod was made without it: a pod with privileged containers \
             has to be privileged",
        ));
    }
    subject::pod(pods, &request.pod_sandbox_id);
    subject::new_container(&spec);
    if !devices.is_empty() {
        let edits = runtime_spans::step(span!("read CDI files"), edits(&CDI, registry, devices)).await?;
        cdi::apply(&mut spec, edits)?;
    }
    let container_id = pods.create_container(&request.pod_sandbox_id, spec).await?;
    subject::container_id(&container_id);
    Ok(v1::CreateContainerResponse { container_id })
}

/// Whether the pod may have privileged containers: as its caller knows it now, else as it was made. A
/// debugging container makes a pod privileged that was started without.
fn may_be_privileged(now: Option<&v1::PodSandboxConfig>, made: bool) -> bool {
    let context = now.and_then(|pod| pod.linux.as_ref()?.security_context.as_ref());
    context.map_or(made, |context| context.privileged)
}

/// The edits of the CDI devices, within a time limit.
pub(crate) async fn edits(
    pool: &Pool,
    registry: &Registry,
    devices: Vec<DeviceName>,
) -> Result<Vec<(Origin, Edits)>, Failure> {
    let registry = registry.clone();
    let reading = pool.run(move || registry.resolve(&devices));
    match tokio::time::timeout(READ_WITHIN, reading).await {
        Ok(resolved) => Ok(resolved??),
        Err(_) => {
            Err(Failure::Node(format!("reading CDI files: no answer within {} s", READ_WITHIN.as_secs())))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_pod_is_privileged_as_its_caller_knows_it_now() {
        let pod = |privileged| v1::PodSandboxConfig {
            linux: Some(v1::LinuxPodSandboxConfig {
                security_context: Some(v1::LinuxSandboxSecurityContext { privileged, ..Default::default() }),
                ..Default::default()
            }),
            ..Default::default()
        };
        for made in [false, true] {
            assert!(may_be_privileged(Some(&pod(true)), made));
            assert!(!may_be_privileged(Some(&pod(false)), made));
            for without in [None, Some(&v1::PodSandboxConfig::default())] {
                assert_eq!(may_be_privileged(without, made), made);
            }
        }
    }

    fn asked() -> Vec<DeviceName> {
        vec!["v.com/c=d".parse().unwrap()]
    }

    #[tokio::test]
    async fn a_device_that_no_file_defines_is_the_callers_fault_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new(vec![dir.path().to_owned()]);
        let failure = edits(&CDI, &registry, asked()).await.unwrap_err();
        let status = tonic::Status::from(failure);
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert!(status.message().starts_with("CDI device v.com/c=d: no file in "), "{status}");
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_hang_keep_no_call_waiting_for_ever() {
        let pool = Pool::new("files that hang", 1);
        let (thaw, frozen) = mpsc::channel::<()>();
        let hanging = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(move || frozen.recv().is_err()).await }
        });
        tokio::task::yield_now().await;
        let asking = tokio::spawn(async move {
            let registry = Registry::new(vec!["/there-is-none".into()]);
            edits(&pool, &registry, asked()).await
        });
        tokio::task::yield_now().await;
        tokio::time::advance(READ_WITHIN + Duration::from_secs(1)).await;
        let status = tonic::Status::from(asking.await.unwrap().unwrap_err());
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert!(status.message().contains("files that hang"), "{status}");
        drop(thaw);
        assert!(hanging.await.unwrap().unwrap());
    }
}
