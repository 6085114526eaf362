//! Counters of sent and dropped spans, for the node's metrics.

use std::sync::LazyLock;

use prometheus::{IntCounter, IntCounterVec, register_int_counter, register_int_counter_vec};

const ONCE: &str = "each name is registered in one place";

static SENT: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!("podvisor_trace_spans_sent_total", "Spans that the collector has taken.")
        .expect(ONCE)
});

static DROPPED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "podvisor_trace_spans_dropped_total",
        "Spans that are lost: the queue was full, the collector did not answer, or it rejected them.",
        &["reason"]
    )
    .expect(ONCE)
});

/// Why spans are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// More came than the collector takes.
    Queue,
    /// The collector did not answer, or answered something invalid.
    Unanswered,
    /// The collector rejected them.
    Rejected,
}

impl Reason {
    const ALL: [Reason; 3] = [Reason::Queue, Reason::Unanswered, Reason::Rejected];

    fn name(self) -> &'static str {
        match self {
            Reason::Queue => "queue",
            Reason::Unanswered => "unanswered",
            Reason::Rejected => "rejected",
        }
    }
}

pub(crate) fn sent(spans: u64) {
    SENT.inc_by(spans);
}

pub(crate) fn dropped(reason: Reason, spans: u64) {
    DROPPED.with_label_values(&[reason.name()]).inc_by(spans);
}

/// Makes the counters known with their zeros: an alert on an increase needs the value before the first.
pub(crate) fn register() {
    LazyLock::force(&SENT);
    for reason in Reason::ALL {
        DROPPED.with_label_values(&[reason.name()]);
    }
}
