//! The path of KVM's device. Nothing here opens it.

/// The device that VMs are made by, and without which none can be measured (kernel, `Documentation/virt/kvm/api.rst`).
pub(crate) const KVM: &str = "/dev/kvm";
