//! A caller's choices for a boot: the size of the VM, and its guest.

use std::fs::File;

/// The size of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Memory at boot, in bytes: a multiple of 2 MiB.
    pub memory_bytes: u64,
    /// Most memory after [`crate::Vm::resize`], in bytes: a multiple of 2 MiB, at least `memory_bytes`.
    pub memory_max_bytes: u64,
    /// vCPUs made at boot. The guest brings up one, the agent the others.
    pub vcpus: u8,
    /// Most vCPUs after [`crate::Vm::make_vcpus`], at least `vcpus`.
    pub vcpus_max: u8,
}

impl Size {
    /// Returns the size of a VM without room to grow.
    pub fn fixed(memory_bytes: u64, vcpus: u8) -> Size {
        Size { memory_bytes, memory_max_bytes: memory_bytes, vcpus, vcpus_max: vcpus }
    }
}

/// The parts of a guest that do not depend on the VM's size.
#[derive(Clone, Copy, Debug)]
pub struct BootPlan<'a> {
    /// An uncompressed ELF kernel.
    pub kernel: &'a File,
    /// The guest's root image.
    pub root_image: &'a File,
    /// Added after the VMM's own command line; may be empty.
    pub cmdline: &'a str,
    /// Host ports open to the guest, for [`crate::Vm::guest_stream`]; all others are refused.
    pub host_ports: &'a [u32],
    /// One more such port, for programs of containers, with more frequent connections; `None` to refuse them.
    /// An older VMM refuses them in any case ([`crate::Vm::has_program_port`]).
    pub program_port: Option<u32>,
}
