//! Saves a paused VM.

use super::vcpu::VcpuSnapshot;
use super::vm::VmSnapshot;
use crate::vm::{Vm, VmError};

impl Vm {
    /// Returns the snapshot of a paused VM and its vCPUs; devices save theirs through their transports.
    pub fn save(&self) -> Result<(VmSnapshot, Vec<VcpuSnapshot>), VmError> {
        let vcpus = self.vcpus.iter().map(|vcpu| vcpu.save().map(|state| *state));
        Ok((VmSnapshot::save(&self.vm_fd)?, vcpus.collect::<Result<_, _>>()?))
    }
}
