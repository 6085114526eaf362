//! An error of KVM, with the failed step.

/// KVM refused a step of making a VM.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up KVM: {step}")]
pub struct KvmError {
    step: &'static str,
    source: kvm_ioctls::Error,
}

/// Adds the step to an error of KVM.
pub(crate) fn kvm_error(step: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> KvmError {
    move |source| KvmError { step, source }
}
