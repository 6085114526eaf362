//! Exec: one more process in a running container. Several may be started at once; [`agent_container::exec`] makes the
//! process's specification.

use std::sync::Arc;

use agent_container::STATE_ROOT;
use agent_container::launch::{Launch, LaunchKind, OpenFiles};
use proto_agent::agent::ExecRequest;

use crate::containers::{Container, ContainerError, Exec, Phase, check_id};
use crate::launcher;
use crate::lifecycle::stdio;
use crate::pod::Pod;
use crate::process::{Process, Role};

/// Most execs that are remembered of one container, running ones included; probes make many.
const EXECS_MAX: usize = 256;

/// Starts the process, which runs or has ended when this returns.
pub(crate) async fn exec(pod: &Pod, request: ExecRequest) -> Result<(), ContainerError> {
    check_id(&request.exec_id)?;
    let container = pod.containers.get(&request.container_id)?;
    let first = reserve(&container, &request.exec_id)?;
    let result = launch(pod, &container, first, &request).await;
    let mut execs = container.execs();
    match result {
        Ok(process) => {
            execs.insert(request.exec_id, Exec::Started(process));
            Ok(())
        }
        Err(error) => {
            execs.remove(&request.exec_id);
            Err(error)
        }
    }
}

/// Takes the exec's id in a running container, and returns the pid of the container's first process. At the bound,
/// execs that have ended and whose output the host has make room.
fn reserve(container: &Container, exec_id: &str) -> Result<i32, ContainerError> {
    let first = match &*container.phase() {
        Phase::Running { first } if !first.has_ended() => first.pid(),
        other => return Err(container.wrong_phase(other)),
    };
    let mut execs = container.execs();
    if execs.contains_key(exec_id) {
        return Err(ContainerError::ExecExists(exec_id.to_owned()));
    }
    if execs.len() >= EXECS_MAX {
        let delivered = |exec: &Exec| matches!(exec, Exec::Started(process) if process.output_delivered());
        let before = execs.len();
        execs.retain(|_, exec| !delivered(exec));
        if execs.len() == before {
            return Err(ContainerError::TooManyExecs { id: container.id().to_owned(), count: EXECS_MAX });
        }
    }
    execs.insert(exec_id.to_owned(), Exec::Starting);
    Ok(first)
}

async fn launch(
    pod: &Pod,
    container: &Container,
    first: i32,
    request: &ExecRequest,
) -> Result<Arc<Process>, ContainerError> {
    let template = container.exec_template.get().ok_or_else(|| container.wrong_phase(&Phase::Creating))?;
    let exec = template.exec(&request.process_json, first, request.tty)?;
    let user = exec.process.user();
    let (uid, gid) = pod.guest_ids(user.uid(), user.gid())?;
    let stdio_spec =
        stdio::StdioSpec { terminal: request.tty, stdin: request.stdin, buffered: false, uid, gid };
    // A short name, whatever the id: a socket's path has 107 bytes.
    let console = container.directory().join(format!("c{}", pod.next_number()));
    let (descriptors, pending) =
        stdio::make(stdio_spec, console).map_err(container.io("make the standard streams"))?;
    let launch = Launch {
        state_root: STATE_ROOT.into(),
        container_id: container.id().to_owned(),
        open_files: OpenFiles::of(&exec.process),
        kind: LaunchKind::Exec(Box::new(exec)),
        console_socket: pending.console(),
    };
    let launched = launcher::launch(&pod.reaper, &launch, descriptors).await?;
    let streams = pending.streams().await.map_err(container.io("receive the terminal"))?;
    Ok(Process::follow(launched.pid, launched.exit, streams, container.cgroup().clone(), Role::Exec))
}
