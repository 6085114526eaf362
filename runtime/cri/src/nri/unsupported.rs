//! Adjustments impossible for a container in a VM, by their NRI names, and their handling.

use std::collections::BTreeSet;

use proto_nri::nri::{ContainerAdjustment, LinuxContainerAdjustment};
use protobuf::Message;

/// Handling of adjustments impossible for a container in a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnsupportedAdjustments {
    /// The container is not created, or not changed.
    #[default]
    Refuse,
    /// The container is created without it. A log line says so.
    Ignore,
}

impl UnsupportedAdjustments {
    /// Refuses these fields, or skips them. Both are logged; the refused caller logs the refusal.
    pub(super) fn judge(self, container: &str, fields: BTreeSet<&'static str>) -> Result<(), String> {
        if fields.is_empty() {
            return Ok(());
        }
        let fields = fields.into_iter().collect::<Vec<_>>().join(", ");
        match self {
            UnsupportedAdjustments::Refuse => Err(format!(
                "{fields}: a container in a VM cannot have it; nri.unsupported = \"ignore\" has such fields passed over"
            )),
            UnsupportedAdjustments::Ignore => {
                tracing::warn!(
                    container,
                    fields,
                    "fields set by NRI plugins are skipped: a VM cannot have them"
                );
                Ok(())
            }
        }
    }
}

/// The set fields impossible for a container in a VM.
pub(super) fn fields(adjustment: &ContainerAdjustment) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    if adjustment.hooks.as_ref().is_some_and(|hooks| hooks.compute_size() > 0) {
        found.insert("hooks");
    }
    if let Some(linux) = adjustment.linux.as_ref() {
        of_linux(linux, &mut found);
    }
    found
}

fn of_linux(linux: &LinuxContainerAdjustment, found: &mut BTreeSet<&'static str>) {
    let set = [
        (!linux.cgroups_path.is_empty(), "linux.cgroups_path"),
        (linux.io_priority.is_some(), "linux.io_priority"),
        (linux.seccomp_policy.is_some(), "linux.seccomp_policy"),
        (!linux.namespaces.is_empty(), "linux.namespaces"),
        (!linux.sysctl.is_empty(), "linux.sysctl"),
        (!linux.net_devices.is_empty(), "linux.net_devices"),
        (linux.scheduler.is_some(), "linux.scheduler"),
        (linux.memory_policy.is_some(), "linux.memory_policy"),
        // There is no class to remove.
        (linux.rdt.as_ref().is_some_and(|rdt| !rdt.remove), "linux.rdt"),
    ];
    found.extend(set.into_iter().filter_map(|(is_set, field)| is_set.then_some(field)));
}

#[cfg(test)]
mod tests {
    use proto_nri::nri::{Hook, LinuxNamespace, LinuxRdt};

    use super::*;

    #[test]
    fn what_a_vm_cannot_have_is_refused_by_name_or_passed_over() {
        let mut adjustment = ContainerAdjustment::new();
        assert_eq!(fields(&adjustment), BTreeSet::new());
        adjustment.hooks.mut_or_insert_default();
        adjustment.linux.mut_or_insert_default().rdt =
            Some(LinuxRdt { remove: true, ..Default::default() }).into();
        assert_eq!(fields(&adjustment), BTreeSet::new(), "nothing is asked for");
        adjustment.hooks.mut_or_insert_default().poststop.push(Hook::new());
        let linux = adjustment.linux.mut_or_insert_default();
        linux.namespaces.push(LinuxNamespace::new());
        linux.sysctl.insert("kernel.x".into(), "1".into());
        linux.rdt = Some(LinuxRdt::new()).into();
        let found = fields(&adjustment);
        let refused = UnsupportedAdjustments::Refuse.judge("app", found.clone()).unwrap_err();
        assert!(refused.starts_with("hooks, linux.namespaces, linux.rdt, linux.sysctl: "), "{refused}");
        UnsupportedAdjustments::Ignore.judge("app", found).unwrap();
        UnsupportedAdjustments::Refuse.judge("app", BTreeSet::new()).unwrap();
    }
}
