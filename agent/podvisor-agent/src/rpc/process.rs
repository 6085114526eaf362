//! Processes: exec, wait, signal. [`crate::process`] follows them.

use proto_agent::agent::{
    ExecRequest, ExecResponse, SignalRequest, SignalResponse, WaitRequest, WaitResponse,
};
use ttrpc::Code;

use crate::lifecycle;
use crate::rpc::gate::Gate;
use crate::rpc::status::{refusal, refused};

/// Largest signal number of Linux.
const SIGNAL_MAX: u32 = 64;

/// Most killed processes named in an answer. The daemon asks again while some are left.
const KILLED_MAX: usize = 4096;

pub(super) async fn exec(gate: &Gate, request: ExecRequest) -> ttrpc::Result<ExecResponse> {
    gate.run(|pod| async move { lifecycle::exec(&pod, request).await }).await?;
    Ok(ExecResponse::default())
}

pub(super) async fn wait(gate: &Gate, request: WaitRequest) -> ttrpc::Result<WaitResponse> {
    let pod = gate.pod().await?;
    let process =
        pod.containers.process(&request.container_id, &request.exec_id).map_err(|error| refused(&error))?;
    let ended = process.wait().await;
    let ended = ended.ok_or_else(|| refusal(Code::INTERNAL, "the end of the process is not known"))?;
    if !request.exec_id.is_empty() {
        pod.containers.exec_reported(&request.container_id, &request.exec_id);
    }
    Ok(WaitResponse {
        exit_code: ended.exit.code,
        exited_at_ns: ended.exit.at_ns,
        reason: ended.reason.into(),
        ..Default::default()
    })
}

pub(super) async fn signal(gate: &Gate, request: SignalRequest) -> ttrpc::Result<SignalResponse> {
    let pod = gate.pod().await?;
    if !(1..=SIGNAL_MAX).contains(&request.signal) {
        return Err(refusal(Code::INVALID_ARGUMENT, "a signal's number is 1 to 64"));
    }
    if request.all && !request.exec_id.is_empty() {
        return Err(refusal(
            Code::INVALID_ARGUMENT,
            "exec_id must be empty where all processes are signalled",
        ));
    }
    if request.all && request.tree {
        return Err(refusal(
            Code::INVALID_ARGUMENT,
            "all processes and a tree of processes exclude each other",
        ));
    }
    let result = if request.all {
        let container = pod.containers.get(&request.container_id).map_err(|error| refused(&error))?;
        container.signal_all(request.signal)
    } else {
        let process = pod.containers.process(&request.container_id, &request.exec_id);
        let process = process.map_err(|error| refused(&error))?;
        if request.tree {
            process.signal_tree(request.signal)
        } else {
            process.signal(request.signal).map(|()| Vec::new())
        }
    };
    let left = result.map_err(|error| refusal(Code::INTERNAL, &format!("cannot signal: {error}")))?;
    // The VMM interrupts the waits of these processes. A process without SIGKILL would mistake that for a
    // signal.
    let killed = if request.signal == nix::libc::SIGKILL.unsigned_abs() { left } else { Vec::new() };
    let killed = killed.into_iter().filter_map(|pid| u32::try_from(pid).ok()).take(KILLED_MAX).collect();
    Ok(SignalResponse { killed, ..Default::default() })
}
