//! Events of pods and containers, counted for the node's metrics. The counters begin with the daemon, and
//! nothing here decides anything.

use std::sync::LazyLock;

use prometheus::{
    HistogramVec, IntCounter, IntCounterVec, IntGauge, register_histogram_vec, register_int_counter,
    register_int_counter_vec, register_int_gauge,
};
use runtime_spec::ExitReason;

use crate::boot_id::BootId;
use crate::record::VmmProcess;
use crate::view::Phase;

const ONCE: &str = "each name is registered in one place";

/// From a step of a warm start to the deadline of a boot, in seconds.
const PHASE_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Names of the phases of a start.
pub(crate) const PHASE_NAMES: [&str; 9] =
    ["boot", "configure", "guest", "network", "plug", "record", "scratch", "spawn", "total"];

/// How the VM of a pod was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The kernel was booted.
    Boot,
    /// The VM went on from a template.
    Template,
    /// The VM had gone on from a template before the pod came.
    Spare,
}

impl Origin {
    const ALL: [Origin; 3] = [Origin::Boot, Origin::Template, Origin::Spare];

    fn label(self) -> &'static str {
        match self {
            Origin::Boot => "boot",
            Origin::Template => "template",
            Origin::Spare => "spare",
        }
    }
}

/// The outcome for a requested template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateOutcome {
    /// A VM was booted and saved.
    Built,
    /// The template was read from the disk.
    Loaded,
    /// The template was on the disk, but damaged.
    Unfit,
    /// The template could not be made.
    Failed,
}

impl TemplateOutcome {
    const ALL: [TemplateOutcome; 4] =
        [TemplateOutcome::Built, TemplateOutcome::Loaded, TemplateOutcome::Unfit, TemplateOutcome::Failed];

    fn label(self) -> &'static str {
        match self {
            TemplateOutcome::Built => "built",
            TemplateOutcome::Loaded => "loaded",
            TemplateOutcome::Unfit => "unfit",
            TemplateOutcome::Failed => "failed",
        }
    }
}

/// Possible outcomes of a daemon's search for a ready pod's VM.
const RECOVERIES: [&str; 3] = ["found", "lost", "rebooted"];

static PHASES: LazyLock<HistogramVec> = LazyLock::new(|| {
    register_histogram_vec!(
        "podvisor_pod_start_phase_duration_seconds",
        "How long each phase of a pod's start took; phases run side by side, and total is the whole.",
        &["phase"],
        PHASE_SECONDS.to_vec()
    )
    .expect(ONCE)
});

static FAILED_STARTS: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!("podvisor_pod_start_failures_total", "Pods that could not be started.").expect(ONCE)
});

static VM_STARTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "podvisor_vm_starts_total",
        "VMs that pods were given, by what they were started from: their kernel, a template, or a template before the pod came.",
        &["origin"]
    )
    .expect(ONCE)
});

static TEMPLATES: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "podvisor_templates_total",
        "Templates that were wanted, by what became of them: built, loaded from the disk, unfit there, or failed.",
        &["outcome"]
    )
    .expect(ONCE)
});

static SPARE_VMS_WAITING: LazyLock<IntGauge> = LazyLock::new(|| {
    register_int_gauge!(
        "podvisor_spare_vms",
        "VMs that were started from a template and wait for their pods."
    )
    .expect(ONCE)
});

static SPARE_VMMS_WAITING: LazyLock<IntGauge> = LazyLock::new(|| {
    register_int_gauge!("podvisor_spare_vmms", "Number of pooled VMMs without a guest.").expect(ONCE)
});

static SPARE_NETWORKS_WAITING: LazyLock<IntGauge> = LazyLock::new(|| {
    register_int_gauge!("podvisor_spare_network_namespaces", "Number of pooled network namespaces.")
        .expect(ONCE)
});

static EXITS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "podvisor_container_exits_total",
        "Containers that have ended, by the reason in their status.",
        &["reason"]
    )
    .expect(ONCE)
});

static VMS_LOST: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "podvisor_vms_lost_total",
        "VMs that ended without having been asked, with all containers in them."
    )
    .expect(ONCE)
});

static RECOVERED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "podvisor_pods_recovered_total",
        "Ready pods of the daemon before, by what became of their VM: found, lost, or of an earlier boot of the node.",
        &["outcome"]
    )
    .expect(ONCE)
});

static SETTINGS_PASSED_BY: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "podvisor_pod_settings_passed_by_total",
        "Pods that were started without settings that CNI plugins had left in their network namespaces."
    )
    .expect(ONCE)
});

static RECLAIMED: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "podvisor_guest_cache_reclaimed_bytes_total",
        "Bytes of cached files that guests gave back because the node was short of memory."
    )
    .expect(ONCE)
});

/// Counts the bytes of cached files given back by a guest.
pub(crate) fn guest_cache_reclaimed(bytes: u64) {
    RECLAIMED.inc_by(bytes);
}

/// Counts a pod's start.
pub(crate) fn pod_started(phases: &[Phase]) {
    for phase in phases {
        PHASES.with_label_values(&[&phase.name]).observe(phase.duration.as_secs_f64());
    }
}

/// Counts a VM started for a pod.
pub(crate) fn pod_started_from(origin: Origin) {
    VM_STARTS.with_label_values(&[origin.label()]).inc();
}

/// Counts a requested template.
pub(crate) fn template(outcome: TemplateOutcome) {
    TEMPLATES.with_label_values(&[outcome.label()]).inc();
}

/// Sets the numbers of pooled VMMs without a guest and of pooled VMs.
pub(crate) fn spares_waiting(vmms: usize, vms: usize) {
    for (gauge, count) in [(&SPARE_VMMS_WAITING, vmms), (&SPARE_VMS_WAITING, vms)] {
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// Notes how many network namespaces wait for pods.
pub(crate) fn spare_networks_waiting(count: usize) {
    SPARE_NETWORKS_WAITING.set(i64::try_from(count).unwrap_or(i64::MAX));
}

/// Counts a pod's failed start.
pub(crate) fn pod_start_failed() {
    FAILED_STARTS.inc();
}

/// Counts the end of a container.
pub(crate) fn container_exited(reason: ExitReason) {
    EXITS.with_label_values(&[reason.name()]).inc();
}

/// Counts an unexpected end of a VM.
pub(crate) fn vm_lost() {
    VMS_LOST.inc();
}

/// Counts a pod that was ready when an earlier daemon ended. A VM ends with the node's boot, so a VM of an
/// earlier boot is not lost by a fault.
pub(crate) fn pod_recovered(found: bool, vmm: Option<VmmProcess>) {
    let boot = vmm.and_then(|vmm| vmm.boot);
    let outcome = match found {
        true => "found",
        false if boot.is_some() && boot != BootId::current() => "rebooted",
        false => "lost",
    };
    RECOVERED.with_label_values(&[outcome]).inc();
}

/// The outcome of a connection of a program to a socket of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketOutcome {
    /// The program and the node's server are connected.
    Connected,
    /// The node's socket took no connection.
    Refused,
    /// The program had no permission.
    Unauthorized,
    /// The connector failed.
    Failed,
}

impl SocketOutcome {
    const ALL: [SocketOutcome; 4] = [
        SocketOutcome::Connected,
        SocketOutcome::Refused,
        SocketOutcome::Unauthorized,
        SocketOutcome::Failed,
    ];

    fn name(self) -> &'static str {
        match self {
            SocketOutcome::Connected => "connected",
            SocketOutcome::Refused => "refused",
            SocketOutcome::Unauthorized => "unauthorized",
            SocketOutcome::Failed => "failed",
        }
    }
}

static SOCKET_CONNECTIONS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "podvisor_host_socket_connections_total",
        "Connections of containers to sockets of the node, by what became of them: connected, refused by the socket, \
         unauthorized, or failed.",
        &["outcome"]
    )
    .expect(ONCE)
});

/// Counts a connection of a program to a socket of the node.
pub(crate) fn host_socket_connection(outcome: SocketOutcome) {
    SOCKET_CONNECTIONS.with_label_values(&[outcome.name()]).inc();
}

/// Counts a pod started without some of its plugins' settings.
pub(crate) fn settings_passed_by() {
    SETTINGS_PASSED_BY.inc();
}

/// Initialises the counters to zero: an alert on an increase needs the value before the first one.
pub(crate) fn register() {
    LazyLock::force(&FAILED_STARTS);
    LazyLock::force(&VMS_LOST);
    LazyLock::force(&SETTINGS_PASSED_BY);
    LazyLock::force(&RECLAIMED);
    LazyLock::force(&SPARE_VMS_WAITING);
    LazyLock::force(&SPARE_VMMS_WAITING);
    LazyLock::force(&SPARE_NETWORKS_WAITING);
    for reason in ExitReason::ALL {
        EXITS.with_label_values(&[reason.name()]);
    }
    for phase in PHASE_NAMES {
        PHASES.with_label_values(&[phase]);
    }
    for origin in Origin::ALL {
        VM_STARTS.with_label_values(&[origin.label()]);
    }
    for outcome in TemplateOutcome::ALL {
        TEMPLATES.with_label_values(&[outcome.label()]);
    }
    for outcome in RECOVERIES {
        RECOVERED.with_label_values(&[outcome]);
    }
    for outcome in SocketOutcome::ALL {
        SOCKET_CONNECTIONS.with_label_values(&[outcome.name()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_of_an_earlier_boot_is_not_counted_as_lost() {
        let this_boot = VmmProcess::of_this_boot(1, 1);
        let earlier = VmmProcess { boot: Some("0".repeat(32).try_into().unwrap()), ..this_boot };
        let count = |outcome| RECOVERED.with_label_values(&[outcome]).get();
        // Tests of this process count, too.
        for (found, vmm, outcome) in [
            (true, Some(this_boot), "found"),
            (false, Some(this_boot), "lost"),
            (false, None, "lost"),
            (false, Some(earlier), "rebooted"),
        ] {
            let before = count(outcome);
            pod_recovered(found, vmm);
            assert!(count(outcome) > before, "{outcome}");
        }
    }
}
