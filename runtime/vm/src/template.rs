//! Templates: a saved VM, and VMs that continue from it. The caller owns both files of a template.

use std::fs::File;

use proto_vmm::{PAGE_RUNS_MAX, PageRun, Request, Response, RestoreConfig, TEMPLATES_VERSION};
use runtime_fail_points::Point;

use crate::VmError;
use crate::descriptors::Descriptors;
use crate::plan::Size;
use crate::vm::{Vm, duplicate};

/// A caller's choices for a restore. The size is the saved VM's.
#[derive(Clone, Copy, Debug)]
pub struct RestorePlan<'a> {
    /// The saved memory: a file in memory, sealed against writing and shrinking.
    pub memory: &'a File,
    /// The state saved beside the memory.
    pub state: &'a File,
    /// Pages of the memory the guest will soon write to. The VMM copies them before the guest runs. At most
    /// [`PAGE_RUNS_MAX`] runs.
    pub first_writes: &'a [PageRun],
    /// Further pages the guest will soon read. The VMM makes KVM map them before the guest runs. At most
    /// [`PAGE_RUNS_MAX`] runs.
    pub first_reads: &'a [PageRun],
    /// The guest's root image, the same as in the saved VM.
    pub root_image: &'a File,
    /// Host ports open to the guest.
    pub host_ports: &'a [u32],
    /// Host port for programs of containers, if there is one.
    pub program_port: Option<u32>,
}

impl Vm {
    /// Returns true if the VMM can save its VM and start one from a template.
    pub fn has_templates(&self) -> bool {
        self.0.version >= TEMPLATES_VERSION
    }

    /// Pauses the VM for good and writes it to two empty files: its memory, and its state. Only a
    /// [`shutdown`](Self::shutdown) may follow.
    ///
    /// # Errors
    /// As [`boot`](Self::boot), and [`VmError::NoTemplates`] for an older VMM.
    pub async fn save(&self, memory: &File, state: &File) -> Result<(), VmError> {
        self.check_templates()?;
        let mut descriptors = Descriptors::default();
        let memory = descriptors.push(duplicate(memory)?);
        let state = descriptors.push(duplicate(state)?);
        match self.ask(Point::VmmSave, "save", Request::Save { memory, state }, &descriptors).await? {
            Response::Saved => Ok(()),
            _ => Err(VmError::Confused { request: "save" }),
        }
    }

    /// Builds the VM from a template and lets it run, instead of [`boot`](Self::boot). The VM has the devices
    /// common to all VMs; others are plugged afterwards.
    ///
    /// # Errors
    /// As [`save`](Self::save).
    pub async fn restore(&self, size: Size, plan: RestorePlan<'_>) -> Result<(), VmError> {
        self.check_templates()?;
        let within = |runs: &[PageRun]| runs[..runs.len().min(PAGE_RUNS_MAX)].to_vec();
        let mut descriptors = Descriptors::default();
        let memory = descriptors.push(duplicate(plan.memory)?);
        let state = descriptors.push(duplicate(plan.state)?);
        let devices = self.own_devices(plan.root_image, plan.host_ports, plan.program_port)?.into_iter();
        let devices = devices.map(|(slot, device)| (slot, device.map(|fd| descriptors.push(fd)))).collect();
        let config = RestoreConfig {
            id: self.0.id.clone(),
            vcpus: size.vcpus_max,
            memory_bytes: size.memory_bytes,
            memory_max_bytes: size.memory_max_bytes,
            memory,
            state,
            devices,
            first_writes: within(plan.first_writes),
            first_reads: within(plan.first_reads),
        };
        let request = Request::Restore(Box::new(config));
        match self.ask(Point::VmmRestore, "restore", request, &descriptors).await? {
            Response::Restored => Ok(()),
            _ => Err(VmError::Confused { request: "restore" }),
        }
    }

    fn check_templates(&self) -> Result<(), VmError> {
        if self.has_templates() {
            return Ok(());
        }
        Err(VmError::NoTemplates { release: self.release().to_owned() })
    }
}
