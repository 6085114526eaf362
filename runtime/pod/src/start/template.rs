//! A pod's start from a template, if its handler allows it and there is one.

use std::fs::File;
use std::sync::{Arc, OnceLock};

use proto_vmm::{StopReason, StopReport};
use tokio::time::Instant;

use super::context::StartContext;
use crate::backend::{BackendError, BackendErrorKind, RestoreRequest, Vm};
use crate::error::{PodError, PodErrorKind};
use crate::templates::{self, Template, TemplateShape};

/// A pod's template.
#[derive(Debug)]
pub(super) struct Chosen {
    shape: TemplateShape,
    template: Arc<Template>,
    taken: Instant,
    /// Why a VM from it did not come up, or could not be restored.
    failure: OnceLock<Blame>,
}

/// What a failure of a template's VM says of the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// It is no good.
    Template,
    /// Nothing for certain: the node may be busy or out of memory, or the pod's limits too low.
    Nobody,
}

impl Blame {
    pub(super) fn of_error(error: &BackendError) -> Blame {
        match error.kind() {
            BackendErrorKind::Unreachable | BackendErrorKind::Ended | BackendErrorKind::Failed => {
                Blame::Nobody
            }
            BackendErrorKind::Invalid
            | BackendErrorKind::Precondition
            | BackendErrorKind::Refused
            | BackendErrorKind::Guest => Blame::Template,
        }
    }

    pub(super) fn of_end(report: &StopReport) -> Blame {
        match report.reason {
            // Among others, a VMM killed by the node's kernel.
            StopReason::Vmm { .. } | StopReason::Requested => Blame::Nobody,
            StopReason::GuestReset
            | StopReason::GuestPanic { .. }
            | StopReason::TripleFault
            | StopReason::InternalError { .. }
            | StopReason::EntryFailed { .. } => Blame::Template,
        }
    }
}

/// The shape of the pod's template, if its handler has any.
fn shape(context: &StartContext) -> Option<TemplateShape> {
    let record = &context.record;
    let rules = context.node.start.now();
    let scope = rules.find(record.handler()).ok()?.template;
    TemplateShape::wanted(scope, &record.bounds, &record.spec.namespace)
}

/// Notes that a pod of this template has its guest configured, so the template works.
pub(super) fn note_success(context: &StartContext) {
    if let Some(shape) = shape(context) {
        context.node.templates.note_success(&shape);
    }
}

/// Notes that a guest of this template answered at first, but could not be configured. After too many such
/// pods in a row, no other one starts from the template. `since` is when this pod began with it.
pub(super) fn note_unusable(
    context: &StartContext,
    template: &Arc<Template>,
    since: Instant,
    error: &PodError,
) {
    let (node, Some(shape)) = (&context.node, shape(context)) else { return };
    if error.kind() == PodErrorKind::Unavailable && node.templates.note_doubt(&shape, template, since) {
        tracing::warn!(
            pod = context.id(),
            error = error.chain(),
            "a template is discarded: its guests cannot be configured"
        );
        templates::discard(node, &shape, template);
    }
}

impl Chosen {
    /// The template for this pod. If the handler has templates but the pod boots, the reason is logged.
    pub(super) fn of(context: &StartContext) -> Option<Chosen> {
        let shape = shape(context)?;
        match templates::take(&context.node, &shape) {
            Ok(template) => Some(Chosen { shape, template, taken: Instant::now(), failure: OnceLock::new() }),
            Err(absent) => {
                tracing::info!(pod = context.id(), reason = absent.text(), "a pod boots");
                None
            }
        }
    }

    /// The template itself.
    pub(super) fn template(&self) -> &Arc<Template> {
        &self.template
    }

    /// Restores the VM; the caller wakes its agent.
    pub(super) async fn restore(
        &self,
        context: &StartContext,
        vm: &Arc<dyn Vm>,
        root_image: File,
        program_port: bool,
    ) -> Result<(), PodError> {
        const DOING: &str = "starting the VM from a template";
        let template = self.template.parts().map_err(|error| {
            self.note_failure(Blame::Nobody);
            PodError::internal(DOING).because(error)
        })?;
        let bounds = context.record.bounds;
        let request = RestoreRequest { bounds, template, root_image, program_port };
        let restored = vm.restore(request).await;
        restored.map_err(|error| {
            self.note_failure(Blame::of_error(&error));
            PodError::internal(DOING).because(error)
        })
    }

    /// Notes the failure of the template's VM. The first one counts.
    pub(super) fn note_failure(&self, blame: Blame) {
        let _ = self.failure.set(blame);
    }

    /// Returns true after a failure of the template's VM: the pod boots. If the template is to blame, or has
    /// failed too often, no other pod starts from it, and a new one is made.
    pub(super) fn has_failed(&self, context: &StartContext, error: &PodError) -> bool {
        let Some(blame) = self.failure.get() else { return false };
        let (node, pod, error) = (&context.node, context.id(), error.chain());
        if *blame == Blame::Template || node.templates.note_doubt(&self.shape, &self.template, self.taken) {
            tracing::warn!(pod, error, "a template is discarded, and the pod boots");
            templates::discard(node, &self.shape, &self.template);
        } else {
            tracing::warn!(pod, error, "a template's VM does not come up, and the pod boots");
        }
        true
    }
}
