//! Metrics of the devices of all running VMs, by the kind of device. Pure.

use runtime_pod::DeviceCounts;

use super::figures::Figures;

pub(super) fn figures(devices: &[DeviceCounts]) -> [Figures; 3] {
    let by_device =
        |of: fn(&DeviceCounts) -> u64| devices.iter().map(|one| (vec![one.device], of(one))).collect();
    let sum = |of: fn(&DeviceCounts) -> u64| devices.iter().map(of).fold(0, u64::saturating_add);
    [
        Figures {
            name: "podvisor_device_faults",
            help: "Requests and rings of guests that made no sense, in the VMs that run.",
            labels: &["device"],
            values: by_device(|one| one.faults),
        },
        Figures {
            name: "podvisor_device_requests_queued",
            help: "Requests of guests that wait for their VMM or are being carried out.",
            labels: &["device"],
            values: by_device(|one| one.queued),
        },
        Figures {
            name: "podvisor_dropped_frames",
            help: "Frames that VMMs lost, in the VMs that run: those that did not fit a guest's buffers, and those that a tap refused.",
            labels: &["direction"],
            values: vec![
                (vec!["to_pods"], sum(|one| one.dropped_received)),
                (vec!["from_pods"], sum(|one| one.dropped_sent)),
            ],
        },
    ]
}
