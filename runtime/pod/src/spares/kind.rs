//! The kinds of spares: everything fixed before the pod is known.

use runtime_spec::{HandlerConfig, VmBounds, VolumeCache};

use crate::templates::shape::TemplateShape;

/// The fixed properties of a spare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SpareKind {
    /// A VMM without a guest. It serves the pod's files with this cache.
    Vmm(VolumeCache),
    /// A VM restored from a template.
    Vm(VmKind),
}

/// The fixed properties of a VM, and its handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VmKind {
    handler: String,
    pub(super) shape: TemplateShape,
    /// vCPUs to begin with.
    vcpus: u8,
    pub(super) scratch_bytes: u64,
    pub(super) volume_cache: VolumeCache,
    /// Whether programs of the guest may open streams to the daemon.
    pub(super) program_port: bool,
}

impl SpareKind {
    /// The kinds for pods with these bounds, beginning with the one that saves the most time.
    pub(crate) fn all_of(
        handler: &HandlerConfig,
        namespace: &str,
        bounds: &VmBounds,
        scratch_bytes: u64,
    ) -> Vec<SpareKind> {
        let vm = VmKind::of(handler, namespace, bounds, scratch_bytes).map(SpareKind::Vm);
        vm.into_iter().chain([SpareKind::vmm_of(handler)]).collect()
    }

    /// The VMM for pods of this handler.
    pub(super) fn vmm_of(handler: &HandlerConfig) -> SpareKind {
        SpareKind::Vmm(handler.volume_cache)
    }

    /// Names the kind, in words.
    pub(super) fn text(&self) -> &'static str {
        match self {
            SpareKind::Vmm(_) => "a VMM",
            SpareKind::Vm(_) => "a VM",
        }
    }

    /// The shape of its template; none if it is made without one.
    pub(crate) fn shape(&self) -> Option<&TemplateShape> {
        match self {
            SpareKind::Vmm(_) => None,
            SpareKind::Vm(kind) => Some(&kind.shape),
        }
    }

    /// Its handler; none for spares shared by all handlers.
    pub(super) fn handler(&self) -> Option<&str> {
        match self {
            SpareKind::Vmm(_) => None,
            SpareKind::Vm(kind) => Some(&kind.handler),
        }
    }
}

impl VmKind {
    /// The kind for pods with these bounds; none if the handler has no spare VMs.
    pub(super) fn of(
        handler: &HandlerConfig,
        namespace: &str,
        bounds: &VmBounds,
        scratch_bytes: u64,
    ) -> Option<VmKind> {
        if handler.spare_vms == 0 {
            return None;
        }
        Some(VmKind {
            handler: handler.name.clone(),
            shape: TemplateShape::wanted(handler.template, bounds, namespace)?,
            vcpus: bounds.boot.vcpus,
            scratch_bytes,
            volume_cache: handler.volume_cache,
            program_port: !handler.host_sockets.is_empty(),
        })
    }

    /// Bounds for restoring the VM from its template.
    pub(super) fn bounds(&self) -> VmBounds {
        let mut bounds = self.shape.bounds();
        bounds.boot.vcpus = self.vcpus;
        bounds
    }
}
