//! Stats: the guest's memory and processes as its kernel counts them, and its clock.

use std::fs;

use proto_agent::agent::{StatsRequest, StatsResponse};
use ttrpc::Code;

use crate::proc_figures::bytes;
use crate::rpc::gate::Gate;
use crate::rpc::status::refusal;

pub(super) async fn stats(gate: &Gate, request: StatsRequest) -> ttrpc::Result<StatsResponse> {
    let clock = &gate.pod().await?.clock;
    clock.heard(request.realtime_ns);
    let stats = read().map_err(|error| refusal(Code::INTERNAL, &format!("cannot read /proc: {error}")))?;
    Ok(StatsResponse { clock: Some(clock.stats()).into(), ..stats })
}

fn read() -> std::io::Result<StatsResponse> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let status = fs::read_to_string("/proc/self/status")?;
    let numbered = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let processes = fs::read_dir("/proc")?.flatten().filter(|entry| numbered(&entry.file_name())).count();
    Ok(StatsResponse {
        memory_total: bytes(&meminfo, "MemTotal:"),
        memory_available: bytes(&meminfo, "MemAvailable:"),
        memory_free: bytes(&meminfo, "MemFree:"),
        agent_resident: bytes(&status, "VmRSS:"),
        processes: u32::try_from(processes).unwrap_or(u32::MAX),
        ..Default::default()
    })
}
