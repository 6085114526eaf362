//! The path of KVM's device. Nothing here opens it.

/// The device for making VMs. Without it none can be measured (kernel, `Documentation/virt/kvm/api.rst`).
pub(crate) const KVM: &str = "/dev/kvm";
