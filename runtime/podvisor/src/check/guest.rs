//! Boots a guest and waits for its agent. Nothing else proves that KVM works here: some `/dev/kvm` run small
//! programs and fail on a Linux kernel. The guest runs no pod and leaves nothing behind.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use proto_vmm::{StopReason, StopReport};
use runtime_spec::Kernel;
use runtime_vm::{BootPlan, Size, Spawn, Vm, VolumeCache};

use super::finding::Problem;
use crate::config::Config;

/// Timeout for a guest's boot: far longer than any guest needs, even in emulation.
const BOOT_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout for the VMM's report of the VM's end, after the agent's stream has broken.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Memory of the guest, in bytes.
const MEMORY_BYTES: u64 = 128 << 20;

/// The remedy if KVM does not run a Linux guest.
const REMEDY: &str =
    "use a host with hardware virtualization, or nested virtualization that runs Linux guests";

/// Boots a guest and returns what its agent reports.
pub(super) fn boot(config: &Config) -> Result<String, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Problem::new(error.to_string(), "see whether this process may make threads"))?;
    let dir = tempfile::Builder::new().prefix("podvisor-check-").tempdir().map_err(|error| {
        Problem::new(format!("no temporary directory: {error}"), "free some space in /tmp")
    })?;
    runtime.block_on(attempt(config, dir.path()))
}

async fn attempt(config: &Config, dir: &Path) -> Result<String, Problem> {
    let open = |path: &Path| {
        File::open(path).map_err(|error| {
            Problem::new(format!("{}: {error}", path.display()), "build it with `make guest-image`")
        })
    };
    let (kernel, root_image) = (open(&config.kernel(Kernel::Small))?, open(&config.root_image())?);
    let binary = config.vmm().map_err(|error| Problem::new(error.to_string(), "set paths.vmm"))?;
    let log = File::create(dir.join("vmm.log"))
        .map_err(|error| Problem::new(error.to_string(), "free some space"))?;
    let shared = dir.join("shared");
    std::fs::create_dir(&shared).map_err(|error| Problem::new(error.to_string(), "free some space"))?;
    let spawn = Spawn {
        binary: &binary,
        dir,
        shared: &shared,
        volume_cache: VolumeCache::default(),
        cgroups: &[],
        id: "check",
        log,
        console: None,
    };
    let vm = Vm::spawn(spawn).await.map_err(|error| vmm_failed(error, dir))?;
    let outcome = async {
        let host_ports = &[proto_agent::port::READY];
        let plan = BootPlan {
            kernel: &kernel,
            root_image: &root_image,
            cmdline: "",
            host_ports,
            program_port: None,
        };
        vm.boot(Size::fixed(MEMORY_BYTES, 1), plan, Vec::new())
            .await
            .map_err(|error| vmm_failed(error, dir))?;
        tokio::select! {
            biased;
            report = vm.stopped() => Err(Problem::new(ended(&report), REMEDY)),
            ready = agent_ready(&vm) => match ready {
                Ok(ready) => Ok(ready),
                // The stream may have broken because the VM ended. Then the VMM's report says more.
                Err(problem) => match tokio::time::timeout(REPORT_TIMEOUT, vm.stopped()).await {
                    Ok(report) => Err(Problem::new(ended(&report), REMEDY)),
                    Err(_) => Err(problem),
                },
            },
            () = tokio::time::sleep(BOOT_TIMEOUT) => {
                Err(Problem::new(format!("the guest said nothing within {BOOT_TIMEOUT:?}"), REMEDY))
            }
        }
    }
    .await;
    // The outcome counts, not whether the VM ended in order.
    let _ = vm.shutdown().await;
    outcome
}

async fn agent_ready(vm: &Vm) -> Result<String, Problem> {
    let failed = |error: anyhow::Error| Problem::new(format!("{error:#}"), REMEDY);
    let stream = vm.guest_stream(proto_agent::port::READY).await.map_err(|error| failed(error.into()))?;
    let ready = runtime_guest::ready(stream).await.map_err(|error| failed(error.into()))?;
    Ok(format!("kernel {}, agent {} ready", ready.kernel_release, ready.agent_version))
}

fn vmm_failed(error: runtime_vm::VmError, dir: &Path) -> Problem {
    let said = std::fs::read_to_string(dir.join("vmm.log")).unwrap_or_default();
    let last = said.lines().last().unwrap_or_default();
    Problem::new(format!("{:#} {last}", anyhow::Error::from(error)).trim().to_owned(), REMEDY)
}

/// Describes in one line how a guest ended.
fn ended(report: &StopReport) -> String {
    match &report.reason {
        StopReason::Requested => "the VM was asked to end".into(),
        StopReason::GuestReset => "the guest reset itself".into(),
        StopReason::GuestPanic { message } => format!("the guest kernel panicked: {message}"),
        StopReason::TripleFault => "the guest kernel crashed (triple fault)".into(),
        StopReason::InternalError { suberror, instruction } => {
            format!("KVM cannot run this guest (internal error {suberror} at instruction {instruction:02x?})")
        }
        StopReason::EntryFailed { hardware_reason } => {
            format!("KVM refused to enter the guest ({hardware_reason:#x})")
        }
        StopReason::Vmm { message } => format!("the VMM failed: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kvm_that_cannot_run_linux_is_named_as_such() {
        let report = StopReport {
            reason: StopReason::InternalError { suberror: 1, instruction: vec![0xf0, 0x48] },
            registers: None,
            console: String::new(),
            exits: Default::default(),
        };
        assert_eq!(ended(&report), "KVM cannot run this guest (internal error 1 at instruction [f0, 48])");
    }
}
