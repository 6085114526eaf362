//! The parts of a boot that a caller chooses: the size of the VM, and its guest.

use std::fs::File;

/// How large a VM is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Memory at boot, in bytes: a multiple of 2 MiB.
    pub memory_bytes: u64,
    /// Most memory after [`crate::Vm::resize`], in bytes: a multiple of 2 MiB, at least `memory_bytes`.
    pub memory_max_bytes: u64,
    /// vCPUs made at boot; the guest brings up one and the agent others.
    pub vcpus: u8,
    /// Most vCPUs after [`crate::Vm::make_vcpus`], at least `vcpus`.
    pub vcpus_max: u8,
}

impl Size {
    /// The size of a VM that does not grow.
    pub fn fixed(memory_bytes: u64, vcpus: u8) -> Size {
        Size { memory_bytes, memory_max_bytes: memory_bytes, vcpus, vcpus_max: vcpus }
    }
}

/// The parts of a guest that are the same for all sizes of VM.
#[derive(Clone, Copy, Debug)]
pub struct BootPlan<'a> {
    /// An uncompressed ELF kernel.
    pub kernel: &'a File,
    /// The guest's root image.
    pub root_image: &'a File,
    /// Added after the VMM's own command line; may be empty.
    pub cmdline: &'a str,
    /// Host ports that the guest may open streams to, for [`crate::Vm::guest_stream`] to return; all others are refused.
    pub host_ports: &'a [u32],
    /// One more such port, for programs of containers, which connect more often; `None` to refuse them. A VMM that is too
    /// old refuses them in any case ([`crate::Vm::has_program_port`]).
    pub program_port: Option<u32>,
}
