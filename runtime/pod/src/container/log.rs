//! A container's log file: its path, and the files opened with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use runtime_fail_points::{Point, pass};
use runtime_logs::LogFile;
use runtime_spec::{ContainerSpec, PodSpec};

use crate::blocking::within;
use crate::error::PodError;
use crate::io::acks::Acks;
use crate::io::output::ContainerOutput;
use crate::node::{Node, Places};
use crate::record::ContainerRecord;

/// How long opening or reopening a log may take.
const OPENED_WITHIN: Duration = Duration::from_secs(30);

/// Makes a new container's log and the file of its acknowledgements.
pub(crate) async fn make(node: &Node, record: &ContainerRecord) -> Result<ContainerOutput, PodError> {
    let log = match &record.log_path {
        Some(path) => {
            let doing = format!("opening the log {}", path.display());
            let opening = async {
                LogFile::open(path, &node.pools.logs)
                    .await
                    .map_err(|error| PodError::internal(doing.as_str()).because(error))
            };
            within(OPENED_WITHIN, &doing, opening).await?
        }
        None => LogFile::discard(),
    };
    let path = node.places.acks_path(&record.pod_id, &record.id);
    let acks = Acks::make(&path)
        .map_err(|error| PodError::internal(format!("making {}", path.display())).because(error))?;
    Ok(ContainerOutput::new(log, acks))
}

/// The log and the acknowledgements of a container created by an earlier daemon. Nothing is opened before its
/// first use. An exited container's log is not `wanted`: nothing will be written, and the file may have been
/// rotated away.
pub(crate) fn found(node: &Node, record: &ContainerRecord, wanted: bool) -> ContainerOutput {
    let Node { places, pools, .. } = node;
    let path = record.log_path.as_ref().filter(|_| wanted);
    let log = path.map_or_else(LogFile::discard, |path| LogFile::found(path, &pools.logs));
    let (pod, id) = (&record.pod_id, &record.id);
    let acks = Acks::found(&places.acks_path(pod, id), &places.former_acks_path(pod, id), &pools.state);
    ContainerOutput::new(log, acks)
}

/// Continues a log in a new file.
pub(crate) async fn reopen(log: &LogFile) -> Result<(), PodError> {
    const DOING: &str = "reopening the log";
    let reopening = async { log.reopen().await.map_err(|error| PodError::internal(DOING).because(error)) };
    within(OPENED_WITHIN, DOING, reopening).await
}

/// The log's path for a container with this spec: absolute. `None` unless the pod has a directory and the
/// container a path in it.
pub(crate) fn path(pod: &PodSpec, spec: &ContainerSpec) -> Option<PathBuf> {
    let path = spec.log_path.as_deref().filter(|path| !path.is_empty())?;
    Some(pod.log_directory.as_ref()?.join(path))
}

/// The published path. Without a log it is a path of the pod's own without a file. Clients may remove
/// `log_path + "*"`, and an empty path would select everything in their working directory (kubelet
/// `container_log_manager.go`, `Clean`).
pub(crate) fn shown_path(places: &Places, record: &ContainerRecord) -> PathBuf {
    let unlogged = || places.pod_state_dir(&record.pod_id).join(format!("{}.log", record.id));
    record.log_path.clone().unwrap_or_else(unlogged)
}

/// Removes the acknowledgements' file, with the container. A file that cannot be removed goes with the pod.
/// So does a file of the first versions, on a disk.
pub(crate) fn remove_acks(path: &Path) {
    match pass(Point::AckRemove).and_then(|()| std::fs::remove_file(path)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "a small file stays until the pod goes");
        }
        _ => {}
    }
}
