//! Resources: the fields set by a plugin, and the overlay of a change over known values.

use proto_nri::nri::{Field, LinuxCPU, LinuxMemory, LinuxResources};

use super::owners::Owners;
use crate::error::NriError;
use crate::name::PluginName;

/// Records that the plugin sets these resources of a container.
pub(super) fn claim(
    owners: &mut Owners,
    container: &str,
    plugin: &PluginName,
    asked: &LinuxResources,
) -> Result<(), NriError> {
    for field in fields(asked) {
        owners.claim(container, field, "", plugin)?;
    }
    for limit in &asked.hugepage_limits {
        owners.claim(container, Field::HugepageLimits, &limit.page_size, plugin)?;
    }
    let mut files: Vec<&String> = asked.unified.keys().collect();
    files.sort();
    files.into_iter().try_for_each(|file| owners.claim(container, Field::CgroupsUnified, file, plugin))
}

/// The set fields, of those without entries.
fn fields(asked: &LinuxResources) -> impl Iterator<Item = Field> {
    let (memory, cpu) = (&asked.memory, &asked.cpu);
    let set = [
        (memory.limit.is_some(), Field::MemLimit),
        (memory.reservation.is_some(), Field::MemReservation),
        (memory.swap.is_some(), Field::MemSwapLimit),
        (memory.kernel.is_some(), Field::MemKernelLimit),
        (memory.kernel_tcp.is_some(), Field::MemTCPLimit),
        (memory.swappiness.is_some(), Field::MemSwappiness),
        (memory.disable_oom_killer.is_some(), Field::MemDisableOomKiller),
        (memory.use_hierarchy.is_some(), Field::MemUseHierarchy),
        (cpu.shares.is_some(), Field::CPUShares),
        (cpu.quota.is_some(), Field::CPUQuota),
        (cpu.period.is_some(), Field::CPUPeriod),
        (cpu.realtime_runtime.is_some(), Field::CPURealtimeRuntime),
        (cpu.realtime_period.is_some(), Field::CPURealtimePeriod),
        (!cpu.cpus.is_empty(), Field::CPUSetCPUs),
        (!cpu.mems.is_empty(), Field::CPUSetMems),
        (asked.pids.is_some(), Field::PidsLimit),
        (asked.blockio_class.is_some(), Field::BlockioClass),
        (asked.rdt_class.is_some(), Field::RdtClass),
    ];
    set.into_iter().filter_map(|(is_set, field)| is_set.then_some(field))
}

/// Overlays the fields set in `asked` on those of `known`.
pub(super) fn overlay(known: &mut LinuxResources, asked: &LinuxResources) {
    macro_rules! take {
        ($into:expr, $from:expr, $($field:ident),+) => {
            $(if $from.$field.is_some() {
                $into.$field = $from.$field.clone();
            })+
        };
    }
    if let Some(asked) = asked.memory.as_ref() {
        let memory: &mut LinuxMemory = known.memory.mut_or_insert_default();
        take!(
            memory,
            asked,
            limit,
            reservation,
            swap,
            kernel,
            kernel_tcp,
            swappiness,
            disable_oom_killer,
            use_hierarchy
        );
    }
    if let Some(asked) = asked.cpu.as_ref() {
        let cpu: &mut LinuxCPU = known.cpu.mut_or_insert_default();
        take!(cpu, asked, shares, quota, period, realtime_runtime, realtime_period);
        if !asked.cpus.is_empty() {
            cpu.cpus.clone_from(&asked.cpus);
        }
        if !asked.mems.is_empty() {
            cpu.mems.clone_from(&asked.mems);
        }
    }
    take!(known, asked, pids, blockio_class, rdt_class);
    for limit in &asked.hugepage_limits {
        known.hugepage_limits.retain(|known| known.page_size != limit.page_size);
        known.hugepage_limits.push(limit.clone());
    }
    known.unified.extend(asked.unified.clone());
    known.devices.extend(asked.devices.iter().cloned());
}
