//! Computes the overhead of pods up to a size from a measurement, and describes its origin. Pure.

use runtime_spec::{VmCost, VmCosts};

use super::measure::{Measurement, Point};
use super::quantity::quantity;

const MIB: u64 = 1 << 20;

/// An overhead is rounded up to a multiple of this many bytes, so the same node prints the same values twice.
const GRAIN: u64 = 4 * MIB;

/// Reserve inside the VM, in bytes: 8 MiB for the page structures of 512 MiB of images, and 8 MiB for the
/// kernel's and agent's data of containers, their processes and their output.
const GUEST_RESERVE: u64 = 16 * MIB;

/// Reserve for the VMM, in bytes: streams, plugged devices, and volumes. A measured pod has none of them.
const VMM_RESERVE: u64 = 4 * MIB;

/// Values for all classes.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    measured: Option<Measured>,
}

#[derive(Clone, Debug)]
struct Measured {
    measurement: Measurement,
    /// Costs that cover the measurement, without a reserve.
    costs: VmCosts,
}

impl Figures {
    /// The daemon's own values.
    pub(super) fn assumed() -> Figures {
        Figures { measured: None }
    }

    /// Values from VMs of this node. An idle VM does not show some costs. For them the daemon's values are
    /// used: page structures of 1/64, and page tables of 1/256 once all memory was touched.
    pub(super) fn measured(measurement: Measurement) -> Figures {
        let points = |cost: fn(&Point) -> u64| -> Vec<(u64, u64)> {
            measurement.points.iter().map(|point| (point.vm_bytes, cost(point))).collect()
        };
        let counted = VmCosts::COUNTED;
        let guest = VmCost::holding(&points(|point| point.guest_bytes), counted.guest.bytes_per_mib);
        let vmm = VmCost::holding(&points(|point| point.vmm.total_bytes()), 0);
        // Little of the memory was touched, so the measurement does not include the page tables.
        let bytes_per_mib = vmm.bytes_per_mib.max(counted.vmm.bytes_per_mib);
        let costs = VmCosts { guest, vmm: VmCost { bytes_per_mib, ..vmm } };
        Figures { measured: Some(Measured { measurement, costs }) }
    }

    /// Whether anything was measured.
    pub(super) fn is_measured(&self) -> bool {
        self.measured.is_some()
    }

    /// The overhead of pods with at most this much memory in containers, in bytes. Never less than the
    /// daemon's own value: with less, it would shrink VMs of such a class, or refuse them.
    pub(super) fn overhead_bytes(&self, size: u64) -> u64 {
        let counted = VmCosts::COUNTED.overhead(size).total_bytes();
        let reserved =
            self.measured.as_ref().map_or(0, |measured| measured.reserved().overhead(size).total_bytes());
        counted.max(reserved).checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX)
    }

    /// Returns warnings for sizes with a measurement above the daemon's own value.
    pub(super) fn warnings(&self, sizes: &[u64]) -> Vec<String> {
        let Some(measured) = &self.measured else { return Vec::new() };
        let short = |part: fn(&VmCosts) -> VmCost| {
            sizes.iter().find_map(|size| {
                // The daemon's VM for a pod of this size.
                let vm = size.saturating_add(VmCosts::COUNTED.overhead(*size).guest_bytes);
                let [counted, found] = [&VmCosts::COUNTED, &measured.costs].map(|costs| part(costs).of(vm));
                (found > counted).then(|| (mib(found), mib(counted), quantity(*size)))
            })
        };
        let guest = short(|costs| costs.guest).map(|(found, counted, size)| {
            format!(
                "WARNING: guests take more than the daemon counts with: {found} MiB measured and {counted} MiB counted, for a \
                 pod of {size}. These classes have what was measured; pods without a class have too little."
            )
        });
        let vmm = short(|costs| costs.vmm).map(|(found, counted, size)| {
            format!(
                "WARNING: VMMs take more than the daemon leaves for them in the cgroup of a pod: {found} MiB measured and \
                 {counted} MiB counted, for a pod of {size}. The node may kill a pod that fills its memory."
            )
        });
        guest.into_iter().chain(vmm).collect()
    }

    /// Describes the origin of the values, a paragraph each.
    pub(super) fn origin(&self) -> Vec<String> {
        let counted = format!(
            "The daemon counts with {} of the VM's memory in the guest, and {} in its VMM.",
            in_words(VmCosts::COUNTED.guest),
            in_words(VmCosts::COUNTED.vmm)
        );
        let Some(Measured { measurement, costs }) = &self.measured else {
            return vec![
                "Not measured: the overhead is what the daemon counts with. `podvisor runtimeclass --measure` measures VMs of \
                 a node with KVM."
                    .into(),
                counted,
            ];
        };
        let [vmm, kernel, agent] = &measurement.releases;
        let vcpus = measurement.points.iter().map(|point| point.vcpus).max().unwrap_or(0);
        let mut origin = vec![format!(
            "Measured on a node, with idle VMs of {vcpus} vCPUs, VMM {vmm}, kernel {kernel}, agent {agent}:"
        )];
        origin.extend(measurement.points.iter().map(describe));
        origin.push(format!(
            "That is at most {} of the VM's memory in the guest, and {} in its VMM, with page tables for all of the memory. \
             A reserve is added: {} MiB in the guest, for 512 MiB of images, for containers and their output; {} MiB in the \
             VMM, for streams, devices and volumes.",
            in_words(costs.guest),
            in_words(costs.vmm),
            GUEST_RESERVE / MIB,
            VMM_RESERVE / MIB
        ));
        origin.push(format!("{counted} The overhead is never less than that."));
        origin
    }
}

impl Measured {
    /// The costs with the reserve.
    fn reserved(&self) -> VmCosts {
        VmCosts { guest: self.costs.guest.plus(GUEST_RESERVE), vmm: self.costs.vmm.plus(VMM_RESERVE) }
    }
}

fn describe(point: &Point) -> String {
    let Point { vm_bytes, reserved_bytes, guest_bytes, agent_bytes, vmm, .. } = point;
    let tables =
        if vmm.kernel_is_whole { "the node's kernel" } else { "page tables alone, for want of a cgroup" };
    format!(
        "- a VM of {} MiB: {} MiB in the guest, of which its kernel keeps {} MiB from the start and the agent has {} MiB; {} MiB \
         in the VMM, of which {} MiB are {tables}.",
        mib(*vm_bytes),
        mib(*guest_bytes),
        mib(*reserved_bytes),
        mib(*agent_bytes),
        mib(vmm.total_bytes()),
        mib(vmm.kernel_bytes)
    )
}

/// Whole MiB, rounded up.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(MIB)
}

fn in_words(cost: VmCost) -> String {
    let percent = cost.bytes_per_mib as f64 * 100.0 / MIB as f64;
    format!("{} MiB and {percent:.2} %", mib(cost.constant_bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::vmm_memory::VmmMemory;
    use super::*;

    const SIZES: [u64; 3] = [512 * MIB, 4096 * MIB, 32768 * MIB];

    fn point(vm_mib: u64, guest: u64, vmm: u64) -> Point {
        let vmm = VmmMemory { resident_bytes: vmm, kernel_bytes: 0, kernel_is_whole: true };
        Point { vm_bytes: vm_mib * MIB, vcpus: 2, guest_bytes: guest, vmm, ..Point::default() }
    }

    fn figures(points: &[(u64, u64, u64)]) -> Figures {
        let points = points.iter().map(|(vm, guest, vmm)| point(*vm, guest * MIB, vmm * MIB)).collect();
        Figures::measured(Measurement { points, ..Measurement::default() })
    }

    #[test]
    fn what_is_counted_holds_a_vm_that_takes_less() {
        let modest = figures(&[(180, 25, 6), (570, 31, 6), (1090, 39, 6)]);
        for size in SIZES {
            assert_eq!(modest.overhead_bytes(size), Figures::assumed().overhead_bytes(size));
        }
        assert_eq!(modest.overhead_bytes(512 * MIB), 84 * MIB);
        assert_eq!(modest.warnings(&SIZES), Vec::<String>::new());
        assert!(Figures::assumed().warnings(&SIZES).is_empty());
    }

    #[test]
    fn a_vm_that_takes_more_than_is_counted_is_a_warning_and_gets_what_it_takes() {
        let hungry = figures(&[(180, 80, 6), (1090, 95, 6)]);
        assert!(hungry.overhead_bytes(512 * MIB) >= (80 + 16 + 16) * MIB);
        let warnings = hungry.warnings(&SIZES);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("guests take more") && warnings[0].contains("512Mi"), "{warnings:?}");
        let warnings = figures(&[(180, 25, 30), (1090, 39, 30)]).warnings(&SIZES);
        assert!(warnings.len() == 1 && warnings[0].contains("VMMs take more"), "{warnings:?}");
    }

    #[test]
    fn a_cost_that_grows_faster_than_is_counted_is_found_at_the_size_where_it_counts() {
        // 2.5 % of the memory, and a small constant.
        let steep = figures(&[(180, 20, 6), (1204, 46, 6)]);
        assert!(steep.warnings(&[512 * MIB]).is_empty());
        let warnings = steep.warnings(&SIZES);
        assert!(warnings.len() == 1 && warnings[0].contains("4Gi"), "{warnings:?}");
        assert!(steep.overhead_bytes(32768 * MIB) > Figures::assumed().overhead_bytes(32768 * MIB));
    }

    #[test]
    fn the_origin_says_what_was_measured_or_that_nothing_was() {
        let assumed = Figures::assumed().origin().join("\n");
        assert!(assumed.starts_with("Not measured") && assumed.contains("52 MiB and 1.56 %"), "{assumed}");
        let measured = figures(&[(180, 25, 6), (1090, 40, 6)]).origin().join("\n");
        assert!(measured.contains("- a VM of 180 MiB: 25 MiB in the guest"), "{measured}");
        assert!(measured.contains("A reserve is added: 16 MiB in the guest"), "{measured}");
    }

    proptest! {
        #[test]
        fn an_overhead_holds_every_vm_that_was_measured_and_what_the_daemon_counts(
            points in prop::collection::vec((64_u64..4096, 0_u64..512, 0_u64..256), 2..5),
            size in (1_u64 << 20)..(64 << 30),
        ) {
            let figures = figures(&points);
            let overhead = figures.overhead_bytes(size);
            prop_assert!(overhead >= VmCosts::COUNTED.overhead(size).total_bytes());
            prop_assert_eq!(overhead % GRAIN, 0);
            for (vm, guest, vmm) in points {
                // A pod with exactly this VM's size.
                let Some(containers) = vm.checked_sub(guest).filter(|mib| *mib > 0) else { continue };
                let taken = (guest + vmm) * MIB;
                prop_assert!(figures.overhead_bytes(containers * MIB) >= taken);
            }
        }
    }
}
