//! Events of pods and containers, counted for those who watch the node. The counters begin with the daemon, and nothing
//! here decides anything.

use std::sync::LazyLock;

use prometheus::{
    HistogramVec, IntCounter, IntCounterVec, register_histogram_vec, register_int_counter,
    register_int_counter_vec,
};
use runtime_spec::ExitReason;

use crate::view::Phase;

const ONCE: &str = "each name is registered in one place";

/// From a step of a warm start to the deadline of a boot, in seconds.
const PHASE_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

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

/// Counts a pod's start.
pub(crate) fn pod_started(phases: &[Phase]) {
    for phase in phases {
        PHASES.with_label_values(&[&phase.name]).observe(phase.duration.as_secs_f64());
    }
}

/// Counts a pod that could not be started.
pub(crate) fn pod_start_failed() {
    FAILED_STARTS.inc();
}

/// Counts the end of a container.
pub(crate) fn container_exited(reason: ExitReason) {
    EXITS.with_label_values(&[reason.name()]).inc();
}

/// Counts a VM that ended without having been asked.
pub(crate) fn vm_lost() {
    VMS_LOST.inc();
}

/// Makes the counters known with their zeros: an alert on an increase needs the value before the first.
pub(crate) fn register() {
    LazyLock::force(&FAILED_STARTS);
    LazyLock::force(&VMS_LOST);
    for reason in ExitReason::ALL {
        EXITS.with_label_values(&[reason.name()]);
    }
}
