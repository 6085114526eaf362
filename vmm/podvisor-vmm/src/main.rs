//! The VMM: one process per pod.
//!
//! At the start, standard input is the listening control socket, and standard output is the file for the
//! guest's console. The process opens `/dev/kvm`, gives up all other access to the host ([`jail`]), and
//! serves one client at a time ([`control`]) until the VM ends. Every file, tap, disk and socket arrives as
//! an open descriptor. The working directory at the start is the pod's shared directory. A second process
//! serves it ([`share`]); this one sees nothing of it.
//!
//! Exit status: 0 if the VM ended as requested, 2 if it ended otherwise, 1 if there never was one.

#![forbid(unsafe_code)]

mod affinity;
mod bounded_log;
mod control;
mod error_chain;
mod jail;
mod share;

use std::error::Error;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use proto_vmm::{StopReason, StopReport, VolumeCache};
use vmm_vm::{BlankVm, Console, Kvm, Userfault};

use bounded_log::BoundedLog;
use control::Control;
use error_chain::chain;

/// Process name of a VMM.
const NAME: &CStr = c"podvisor-vmm";

const EXIT_FAILED: u8 = 1;
const EXIT_GUEST_ENDED: u8 = 2;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some(share::ARGUMENT) {
        return share::serve(arguments.next().as_deref());
    }
    let log = BoundedLog::default();
    tracing_subscriber::fmt().json().with_writer(log.clone()).init();
    let outcome = run(first.as_deref());
    log.make_room_for_the_end();
    match outcome {
        Ok(report) => {
            let code = if report.reason == StopReason::Requested { 0 } else { EXIT_GUEST_ENDED };
            let report = serde_json::to_string(&report).unwrap_or_default();
            tracing::info!(report, "the VM has ended");
            ExitCode::from(code)
        }
        Err(error) => {
            tracing::error!(error = chain(error.as_ref()), "the VMM cannot go on");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn run(volume_cache: Option<&str>) -> Result<StopReport, Box<dyn Error>> {
    // The kernel names a process after its path. The daemon may have executed it by a descriptor, without
    // one.
    nix::sys::prctl::set_name(NAME)?;
    let listener: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    let console = Console::copied_to(File::from(std::io::stdout().as_fd().try_clone_to_owned()?));
    let kvm = Kvm::new().map_err(|error| format!("cannot open /dev/kvm: {error}"))?;
    let volume_cache = volume_cache.map_or(Ok(VolumeCache::default()), str::parse)?;
    // Before the share, which inherits it.
    if let Err(error) = affinity::widen() {
        tracing::info!(%error, "the VM has only the CPUs that the daemon is bound to");
    }
    let privileged = jail::begin()?;
    // Started between the two steps: it inherits the network and IPC namespaces of this process, and the
    // program can still be reached by a path.
    let share = if privileged { Some(share::start(volume_cache)?) } else { None };
    jail::enter()?;
    if let Some(share) = &share {
        share.wait_until_ready()?;
    }
    // If KVM refuses, the answer to the request for the VM says so. KVM itself is closed here, because the
    // process makes no other VM.
    let blank = BlankVm::new(&kvm);
    drop(kvm);
    // A VMM without userfaultfd copies pages by faults.
    let userfault = Userfault::open().ok();
    let control = Control::new(listener, blank, userfault, share.as_ref(), console)?;
    jail::filter_this_thread(jail::Thread::Control)?;
    let report = control.run()?;
    if let Some(share) = share {
        share.end();
    }
    Ok(report)
}
