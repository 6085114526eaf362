//! Exec: one more process in a running container. Several may be started at once. [`agent_container::exec`]
//! makes the process's specification.

use std::sync::Arc;

use agent_container::launch::{Launch, LaunchKind, ProcessLimit};
use proto_agent::agent::ExecRequest;

use crate::containers::{Container, ContainerError, Exec, Phase, check_id};
use crate::launcher::{self, Deadline};
use crate::lifecycle::stdio;
use crate::pod::Pod;
use crate::process::{Process, Role};

/// Most execs remembered for one container, including running ones. Probes make many.
const EXECS_MAX: usize = 256;

/// Starts the process. On return it is running or has already ended. After the caller's bound its program
/// does not begin any more: nobody would wait for it.
pub(crate) async fn exec(pod: &Pod, request: ExecRequest) -> Result<(), ContainerError> {
    let deadline = Deadline::of_caller(request.start_within_ms);
    check_id(&request.exec_id)?;
    let container = pod.containers.get(&request.container_id)?;
    let first = reserve(&container, &request.exec_id)?;
    let result = launch(pod, &container, first, &request, deadline).await;
    let mut execs = container.execs();
    match result {
        Ok(process) => {
            execs.insert(request.exec_id.clone(), Exec::Started(Arc::clone(&process)));
            drop(execs);
            tokio::spawn(end_unless_claimed(container, request.exec_id, process));
            Ok(())
        }
        Err(error) => {
            execs.remove(&request.exec_id);
            Err(error)
        }
    }
}

/// Ends and forgets a command if its outputs are not opened in time. Its daemon was killed before opening
/// them, and the next daemon does not know the command.
async fn end_unless_claimed(container: Arc<Container>, exec_id: String, process: Arc<Process>) {
    if process.is_claimed().await {
        return;
    }
    tracing::warn!(
        container = container.id(),
        exec_id,
        "nobody opened a command's output; the command is ended"
    );
    process.hang_up().await;
    container.execs().remove(&exec_id);
}

/// Reserves the exec's id in a running container, and returns the pid of the container's first process. At
/// the limit, ended execs with delivered output are forgotten to make room.
fn reserve(container: &Container, exec_id: &str) -> Result<i32, ContainerError> {
    let first = match &*container.phase() {
        Phase::Running { first } if !first.is_collected() => first.pid(),
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
    deadline: Deadline,
) -> Result<Arc<Process>, ContainerError> {
    let template = container.exec_template.get().ok_or_else(|| container.wrong_phase(&Phase::Creating))?;
    let exec = template.exec(&request.process_json, first, request.tty)?;
    let user = exec.process.user();
    let (uid, gid) = pod.guest_ids(user.uid(), user.gid())?;
    let stdio_spec =
        stdio::StdioSpec { terminal: request.tty, stdin: request.stdin, buffered: false, uid, gid };
    // A short name whatever the id, because a socket's path has at most 107 bytes.
    let console = container.directory().join(format!("c{}", pod.next_number()));
    let (descriptors, pending) =
        stdio::make(stdio_spec, console).map_err(container.io("make the standard streams"))?;
    let launch = Launch {
        limits: ProcessLimit::of(&exec.process),
        kind: LaunchKind::Exec(Box::new(exec)),
        console_socket: pending.console(),
        filter: template.filter(),
    };
    let launched = launcher::launch(&pod.reaper, &launch, descriptors, deadline).await?;
    // The terminal belongs to the user before the program can open it.
    let streams = pending.streams().await.map_err(container.io("receive the terminal"))?;
    let process =
        Process::follow(launched.pid, launched.exit, streams, container.cgroup().clone(), Role::Exec);
    if let Err(failure) = launched.reports.start(deadline).await {
        // Its program may hang on a host's file. It must not run after the caller has the failure.
        if let Err(error) = process.signal(nix::libc::SIGKILL.unsigned_abs()) {
            tracing::warn!(%error, pid = process.pid(), "cannot end a command that did not start");
        }
        return Err(failure.into());
    }
    Ok(process)
}

#[cfg(test)]
mod tests {
    use tokio::sync::{oneshot, watch};

    use super::*;
    use crate::containers::Containers;
    use crate::process::Streams;
    use crate::reaper::Exit;
    use crate::streams::{Direct, ProcessOutput};

    /// Returns an exec `e1` of a new container, and the sender of its end. The process is in no cgroup, so
    /// nothing is signalled.
    fn started(containers: &Containers) -> (Arc<Container>, Arc<Process>, oneshot::Sender<Exit>) {
        let container = containers.reserve("c1", 17).unwrap();
        let (exit, exited) = oneshot::channel();
        let (ended, has_ended) = watch::channel(false);
        let output = || {
            let (reader, _) = std::io::pipe().unwrap();
            ProcessOutput::Direct(Direct::new(reader.into(), has_ended.clone()).unwrap())
        };
        let streams = Streams { stdin: None, stdout: output(), stderr: Some(output()), ended };
        let process = Process::follow(i32::MAX, exited, streams, container.cgroup().clone(), Role::Exec);
        container.execs().insert("e1".into(), Exec::Started(Arc::clone(&process)));
        (container, process, exit)
    }

    fn take(output: &ProcessOutput) {
        let ProcessOutput::Direct(output) = output else { panic!("a command's output is direct") };
        output.take(0).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_whose_outputs_nobody_opens_is_ended_and_forgotten() {
        let containers = Containers::default();
        let (container, process, _exit) = started(&containers);
        end_unless_claimed(Arc::clone(&container), "e1".into(), process).await;
        assert!(container.execs().is_empty());
        containers.forget("c1");
        // A daemon killed between the two has claimed nothing.
        let (container, process, _exit) = started(&containers);
        take(&process.stdout);
        end_unless_claimed(Arc::clone(&container), "e1".into(), process).await;
        assert!(container.execs().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_whose_outputs_are_open_may_run_as_long_as_it_likes() {
        let containers = Containers::default();
        let (container, process, _exit) = started(&containers);
        take(&process.stdout);
        take(process.stderr.as_ref().unwrap());
        end_unless_claimed(Arc::clone(&container), "e1".into(), process).await;
        assert_eq!(container.execs().len(), 1);
    }
}
