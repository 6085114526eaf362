//! A kubelet's return to its old runtime, after its pods in VMs have ended.
//!
//! A kubelet back on its old runtime knows nothing of VMs and starts their pods again there. Two copies of a
//! pod would then write to one volume. So the kubelet stops first, then all VMs must end, and then the
//! kubelet starts with its old runtime. systemd does all this as one job, and starts the kubelet in any case.

use crate::host::{CallError, Host};
use crate::kubelet;
use crate::processes::{self, ProcessesError};
use crate::record::{Held, InstallRecord, RecordError};
use crate::report::{Report, say};
use crate::root::{HostRoot, RootError};
use crate::short_unit::ShortUnit;

/// The piece of work.
const LEAVE: ShortUnit = ShortUnit { name: "podvisor-leave.service", log: "/run/podvisor-leave.log" };

/// How long the end of all VM pods may take, in seconds.
const SECONDS_MAX: u32 = 800;

/// A kubelet that could not go back, or a node with VMs.
#[derive(Debug, thiserror::Error)]
pub enum LeaveError {
    /// VMs run, and ending them was not requested.
    #[error(
        "VMs still run, as processes {}: drain the node, or end their pods with --force",
        .0.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
    )]
    Vms(Vec<u32>),
    /// Pods run in a runtime beside the distribution's own. Nothing would manage them afterwards.
    #[error(
        "pods run in the runtime behind Podvisor, and {unit} would start them a second time in its own containerd: drain the \
         node, end the rest with crictl at that runtime's socket, and run this command on the node itself"
    )]
    OtherPods {
        /// The unit of the distribution.
        unit: String,
    },
    /// The program for ending pods is missing.
    #[error("VMs still run, and {0} is not there to end them: install Podvisor again first")]
    NoProgram(String),
    /// VM pods could not be ended.
    #[error("the kubelet uses Podvisor as before: {0}")]
    Pods(String),
    /// The node's processes cannot be seen.
    #[error(transparent)]
    Processes(#[from] ProcessesError),
    /// A disk of the node failed.
    #[error(transparent)]
    Root(#[from] RootError),
    /// systemd failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The record is in use or damaged.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Gives the kubelet its old runtime again, and leaves Podvisor installed. With `force`, pods in VMs are
/// ended; otherwise they are an error.
///
/// # Errors
/// VMs run, or a step failed. The kubelet uses Podvisor as before then.
pub fn leave(root: &HostRoot, host: &dyn Host, force: bool, report: Report<'_>) -> Result<(), LeaveError> {
    if Held::peek(root)?.is_none() {
        say(report, "kubelet", "was never switched by this program");
        return Ok(());
    }
    let held = Held::take(root)?;
    let mut record = held.record.clone().unwrap_or_default();
    way_back(root, host, &mut record, force, report)
}

/// Undoes the switch as far as the record requires.
pub(crate) fn way_back(
    root: &HostRoot,
    host: &dyn Host,
    record: &mut InstallRecord,
    force: bool,
    report: Report<'_>,
) -> Result<(), LeaveError> {
    let vms = processes::vmms(root)?;
    if !vms.is_empty() && !force {
        return Err(LeaveError::Vms(vms));
    }
    if let Some(switch) = &record.kubelet
        && kubelet::leaves_pods_behind(root, &switch.unit)?
    {
        return Err(LeaveError::OtherPods { unit: switch.unit.clone() });
    }
    let program = record.prefix.join("bin/podvisor");
    let has_program = root.kind(&program)?.is_some();
    if !vms.is_empty() && !has_program {
        return Err(LeaveError::NoProgram(program.display().to_string()));
    }
    let mut commands = format!("TimeoutStartSec={SECONDS_MAX}\n");
    let mut add = |line: String| commands.push_str(&(line + "\n"));
    if let Some(switch) = &record.kubelet {
        add(format!("ExecStart=systemctl stop {}", switch.unit));
    }
    if has_program {
        // Searches for VMs by itself: there may be new ones.
        add(format!("ExecStart={} node end-pods{}", program.display(), if force { " --force" } else { "" }));
    }
    if let Some(switch) = &record.kubelet {
        add(format!("ExecStart=rm -f {}", switch.drop_in.display()));
        add("ExecStopPost=systemctl daemon-reload".into());
        add(format!("ExecStopPost=systemctl --no-block start {}", switch.unit));
    }
    if record.kubelet.is_some() || has_program {
        let (outcome, said) = LEAVE.run(root, host, &commands)?;
        for line in said.lines() {
            say(report, "pods", line.trim());
        }
        match outcome {
            Ok(()) => {}
            Err(CallError::Failed { said: why, .. }) => {
                let last = said.lines().last().map_or(why, str::to_owned);
                return Err(LeaveError::Pods(last));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let (switch, fallen) = (record.kubelet.take(), record.fallen.take());
    if switch.is_some() || fallen.is_some() {
        record.save(root)?;
    }
    let Some(switch) = switch else { return Ok(()) };
    say(report, "kubelet", format!("{} uses its old runtime again", switch.unit));
    Ok(())
}

/// Removes the leftovers of an interrupted job.
pub(crate) fn clear(root: &HostRoot) -> Result<(), RootError> {
    LEAVE.remove(root)
}
