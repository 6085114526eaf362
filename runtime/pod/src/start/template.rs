//! A pod's start from a template, if its handler allows it and there is one.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::context::StartContext;
use crate::backend::{RestoreRequest, Vm};
use crate::error::PodError;
use crate::templates::{self, Template, TemplateShape};

/// A pod's template.
#[derive(Debug)]
pub(super) struct Chosen {
    shape: TemplateShape,
    template: Arc<Template>,
    /// Whether a VM from it did not come up, or could not be restored.
    failed: AtomicBool,
}

impl Chosen {
    /// The template for this pod. If the handler has templates but the pod boots, the reason is logged.
    pub(super) fn of(context: &StartContext) -> Option<Chosen> {
        let (node, record) = (&context.node, &context.record);
        let rules = node.start.now();
        let scope = rules.find(record.handler()).ok()?.template;
        let shape = TemplateShape::wanted(scope, &record.bounds, &record.spec.namespace)?;
        match templates::take(node, &shape) {
            Ok(template) => Some(Chosen { shape, template, failed: AtomicBool::new(false) }),
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
        let template = self.template.parts();
        let template = template.map_err(|error| PodError::internal(DOING).because(error))?;
        let bounds = context.record.bounds;
        let request = RestoreRequest { bounds, template, root_image, program_port };
        let restored = vm.restore(request).await;
        restored.map_err(|error| PodError::internal(DOING).because(error))
    }

    /// Notes the failure of the template's VM.
    pub(super) fn note_failure(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Notes that a pod has started from the template.
    pub(super) fn note_success(&self, context: &StartContext) {
        context.node.templates.note_success(&self.shape);
    }

    /// After a failure of the template's VM: no other pod starts from the template, and a new one is made.
    pub(super) fn discard_failed(&self, context: &StartContext, error: &PodError) -> bool {
        if !self.failed.load(Ordering::Relaxed) {
            return false;
        }
        let error = error.chain();
        tracing::warn!(pod = context.id(), error, "a template is discarded, and the pod boots");
        templates::discard(&context.node, &self.shape, &self.template);
        true
    }
}
