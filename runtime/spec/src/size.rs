//! Bounds of a pod's VM: the sizes allowed by a handler, and those a VM is built for. `ledger.rs` calculates
//! a pod's current size within them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::sizing::{
    beyond, containers_memory, fitting, guest_overhead, memory_overhead, on_the_node, positive, quota_cpus,
    template_memory, vm_memory, whole,
};
use crate::{Kernel, PodSpec, SpecError, TemplateScope, VolumeCache};

/// A runtime handler of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HandlerConfig {
    /// Name for RuntimeClasses to refer to.
    pub name: String,
    /// Memory for the containers of a pod without a request, in bytes.
    pub memory_default: u64,
    /// Most memory of a pod's VM, overhead included, in bytes.
    pub memory_max: u64,
    /// Most vCPUs of a pod.
    pub vcpus_max: u8,
    /// Size of a pod's scratch disk, in bytes. At least the template's.
    pub scratch_bytes: u64,
    /// Most bytes of all scratch disks of the handler's pods together. `None` for no bound.
    pub scratch_sum_bytes: Option<u64>,
    /// Most bytes of a container's writable layer. `None` for no limit but the scratch disk's.
    pub writable_layer_bytes: Option<u64>,
    /// True if all volumes stay on the node, and the guest keeps none itself.
    pub share_all_volumes: bool,
    /// Cache of the guest's volumes on the node.
    pub volume_cache: VolumeCache,
    /// Sockets of the node reachable from containers, by their absolute paths.
    pub host_sockets: Vec<PathBuf>,
    /// Kernel of the pods' guests.
    pub kernel: Kernel,
    /// The pods that may start from one template.
    pub template: TemplateScope,
    /// Most spare VMs, started from a template, for the handler's pods.
    pub spare_vms: u8,
    /// Runtime of the handler's pods.
    pub kind: HandlerKind,
}

impl Default for HandlerConfig {
    fn default() -> Self {
        HandlerConfig {
            name: String::new(),
            memory_default: 256 << 20,
            memory_max: 4 << 30,
            vcpus_max: 8,
            scratch_bytes: 8 << 30,
            scratch_sum_bytes: None,
            writable_layer_bytes: None,
            share_all_volumes: false,
            volume_cache: VolumeCache::None,
            host_sockets: Vec::new(),
            kernel: Kernel::Small,
            template: TemplateScope::Off,
            spare_vms: 0,
            kind: HandlerKind::Vm,
        }
    }
}

impl HandlerConfig {
    /// Memory in bytes on the node for the VM of a pod without limits, its VMM included.
    pub fn pod_on_the_node(&self) -> u64 {
        on_the_node(self.own_memory())
    }

    /// Boot memory in bytes for the VM of a pod without limits and without an overhead.
    fn own_memory(&self) -> u64 {
        let containers = containers_memory(None, self.memory_default, &[]);
        vm_memory(containers.saturating_add(guest_overhead(self.kernel)))
    }
}

/// Memory in bytes on the node for the smallest VM, its VMM included.
pub fn smallest_vm_on_the_node() -> u64 {
    on_the_node(vm_memory(0))
}

/// Runtime of a handler's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandlerKind {
    /// Each pod has its own VM.
    Vm,
}

/// Size of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VmSize {
    /// Memory in bytes, a multiple of [`MEMORY_GRAIN`](crate::MEMORY_GRAIN).
    pub memory_bytes: u64,
    /// Number of vCPUs, 1..=64.
    pub vcpus: u8,
}

/// Sizes a VM is built for, and its kernel. The bounds are fixed for the VM's life, even if the handler
/// changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VmBounds {
    /// Size of the VM when it boots.
    pub boot: VmSize,
    /// Size up to which the VM may grow. Never less than `boot`.
    pub most: VmSize,
    /// Memory for containers without a limit, in bytes.
    pub memory_default: u64,
    /// Memory limit of the pod's cgroup on the node, for the VM and its VMM, in bytes. `None` without a
    /// limit.
    pub room: Option<u64>,
    /// Kernel of the guest.
    pub kernel: Kernel,
}

/// The shortage of a pod's cgroup on the node, too small for its VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Memory wanted for the VM, in bytes.
    pub vm_bytes: u64,
    /// Memory of the VM and its VMM together, in bytes.
    pub needed_bytes: u64,
    /// Memory allowed by the cgroup, in bytes.
    pub room_bytes: u64,
}

impl VmBounds {
    /// Bounds for the VM of `pod`. If the handler has templates, a VM far larger than the handler's own
    /// starts with that size and grows with its first container. So pods of all such sizes start from one
    /// template.
    ///
    /// # Errors
    /// The pod asks for more memory than the handler allows.
    pub fn of(pod: &PodSpec, handler: &HandlerConfig) -> Result<VmBounds, SpecError> {
        let limit = positive(pod.resources.as_ref().map(|r| r.memory_limit_bytes));
        let overhead = memory_overhead(pod.overhead.as_ref(), handler.kernel);
        let needed =
            |limit| vm_memory(containers_memory(limit, handler.memory_default, &[]).saturating_add(overhead));
        let memory_bytes = needed(limit);
        // A handler's own default always fits.
        let memory_max = whole(handler.memory_max).max(needed(None));
        if memory_bytes > memory_max {
            return Err(beyond("linux.resources.memory_limit_in_bytes", memory_bytes, memory_max));
        }
        let vcpus_max = handler.vcpus_max.clamp(1, 64);
        let quota = pod.resources.as_ref().and_then(|r| quota_cpus(r.cpu_quota, r.cpu_period));
        let vcpus = quota.map_or(vcpus_max, |cpus| u8::try_from(cpus).unwrap_or(u8::MAX).clamp(1, vcpus_max));
        let memory_bytes = match handler.template {
            TemplateScope::Off => memory_bytes,
            _ => template_memory(memory_bytes, handler.own_memory()),
        };
        Ok(VmBounds {
            boot: VmSize { memory_bytes, vcpus },
            most: VmSize { memory_bytes: memory_max, vcpus: vcpus_max },
            memory_default: handler.memory_default,
            room: None,
            kernel: handler.kernel,
        })
    }

    /// The bounds in a cgroup with this memory limit for the VM and its VMM. The VM boots no larger than
    /// fits.
    #[must_use]
    pub fn within(self, room: Option<u64>) -> VmBounds {
        let fits = room.map_or(u64::MAX, fitting);
        let boot = VmSize { memory_bytes: self.boot.memory_bytes.min(fits), ..self.boot };
        VmBounds { boot, room, ..self }
    }
}

impl Shortage {
    /// Checks a cgroup's memory limit against the pod's containers, with their guest and its VMM. Returns the
    /// shortage if it is too small. An overhead beyond them need not fit.
    pub fn of(pod: &PodSpec, handler: &HandlerConfig, room_bytes: u64) -> Option<Shortage> {
        let limit = positive(pod.resources.as_ref().map(|r| r.memory_limit_bytes));
        let most = guest_overhead(handler.kernel);
        let overhead = memory_overhead(pod.overhead.as_ref(), handler.kernel).min(most);
        let containers = containers_memory(limit, handler.memory_default, &[]);
        let vm_bytes = vm_memory(containers.saturating_add(overhead));
        let needed_bytes = on_the_node(vm_bytes);
        (needed_bytes > room_bytes).then_some(Shortage { vm_bytes, needed_bytes, room_bytes })
    }

    /// Missing memory in MiB, rounded up.
    pub fn missing_mib(&self) -> u64 {
        self.needed_bytes.saturating_sub(self.room_bytes).div_ceil(1 << 20)
    }
}
