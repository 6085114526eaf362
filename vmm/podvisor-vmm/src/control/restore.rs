//! Restore: builds the VM from a template, and lets it run on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use proto_vmm::{Response, RestoreConfig, STATE_BYTES_MAX};
use vmm_vm::{Saved, Vm, monotonic_ns};

use super::Control;
use super::answer::{Answer, refusal};
use super::boot::Size;
use super::descriptors::Descriptors;
use crate::error_chain::chain;

impl Control {
    pub(super) fn restore(&mut self, request: RestoreConfig, descriptors: &mut Descriptors) -> Answer {
        let boot_requested_ns = monotonic_ns();
        if self.booted.is_some() {
            return Err(refusal("the VM is booted already"));
        }
        tracing::info!(pod = request.id, vcpus = request.vcpus, memory = request.memory_bytes, "restore");
        let config = self.vm_config(Size {
            vcpus: request.vcpus,
            vcpus_at_boot: 0,
            memory_bytes: request.memory_bytes,
            memory_max_bytes: request.memory_max_bytes,
        });
        let file = File::from(descriptors.take(request.memory)?);
        let state = read(&File::from(descriptors.take(request.state)?));
        let state = state.map_err(|error| refusal(format!("cannot read the saved state: {error}")))?;
        let devices = request.devices.into_iter();
        let devices = devices.map(|(slot, device)| Ok((slot, device.try_map(|fd| descriptors.take(fd))?)));
        let devices = devices.collect::<Result<_, _>>()?;
        let (first_writes, first_reads) = (&request.first_writes, &request.first_reads);
        let userfault = self.userfault.take();
        let saved = Saved { file, state: &state, first_writes, first_reads, userfault };
        let restored = Vm::restore(|| self.blank_vm(), &config, saved, devices);
        self.run_vm(restored.map_err(|error| refusal(chain(&error)))?, boot_requested_ns)?;
        Ok(Response::Restored)
    }
}

/// Reads a file from its beginning. If it is too long, one byte more than the maximum is read.
fn read(file: &File) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length.min(STATE_BYTES_MAX + 1)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
