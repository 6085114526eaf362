//! The pods that a spare is for: all that is fixed before the pod is known.

use runtime_spec::{HandlerConfig, VmBounds, VolumeCache};

use crate::templates::shape::TemplateShape;

/// All that a spare has from the beginning, and the handler that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpareKind {
    pub(super) handler: String,
    pub(super) shape: TemplateShape,
    /// vCPUs to begin with.
    vcpus: u8,
    pub(super) scratch_bytes: u64,
    pub(super) volume_cache: VolumeCache,
    /// Whether programs of the guest may open streams to the daemon.
    pub(super) program_port: bool,
}

impl SpareKind {
    /// The kind for pods with these bounds; none where the handler has no spares.
    pub(crate) fn of(
        handler: &HandlerConfig,
        namespace: &str,
        bounds: &VmBounds,
        scratch_bytes: u64,
    ) -> Option<SpareKind> {
        if handler.spare_vms == 0 {
            return None;
        }
        Some(SpareKind {
            handler: handler.name.clone(),
            shape: TemplateShape::wanted(handler.template, bounds, namespace)?,
            vcpus: bounds.boot.vcpus,
            scratch_bytes,
            volume_cache: handler.volume_cache,
            program_port: !handler.host_sockets.is_empty(),
        })
    }

    /// Bounds by which the VM goes on from its template.
    pub(super) fn bounds(&self) -> VmBounds {
        let mut bounds = self.shape.bounds();
        bounds.boot.vcpus = self.vcpus;
        bounds
    }
}
