//! Metrics of the streaming sessions.

use std::sync::LazyLock;

use prometheus::{IntCounterVec, IntGaugeVec, register_int_counter_vec, register_int_gauge_vec};

const ONCE: &str = "each name is registered in one place";

/// The kinds of sessions, as in the paths of their URLs.
const KINDS: [&str; 3] = ["exec", "attach", "portforward"];

static BEGUN: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "podvisor_streaming_sessions_total",
        "Sessions of exec, attach and portforward that clients have begun.",
        &["kind"]
    )
    .expect(ONCE)
});

static OPEN: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    register_int_gauge_vec!(
        "podvisor_streaming_sessions",
        "Sessions of exec, attach and portforward that are open.",
        &["kind"]
    )
    .expect(ONCE)
});

/// Registers the metrics at zero. An alert on an increase needs the value before the first.
pub(crate) fn register() {
    for kind in KINDS {
        BEGUN.with_label_values(&[kind]);
        OPEN.with_label_values(&[kind]);
    }
}

/// One session, counted as open until it is dropped.
pub(crate) struct Session(&'static str);

impl Session {
    pub(crate) fn begin(kind: &'static str) -> Session {
        BEGUN.with_label_values(&[kind]).inc();
        OPEN.with_label_values(&[kind]).inc();
        Session(kind)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        OPEN.with_label_values(&[self.0]).dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_session_has_its_zero_before_the_first() {
        register();
        let families = prometheus::gather();
        for name in ["podvisor_streaming_sessions", "podvisor_streaming_sessions_total"] {
            let family = families.iter().find(|family| family.name() == name).unwrap();
            let kinds = family.get_metric().iter().map(|series| series.get_label()[0].value());
            let kinds: Vec<&str> = kinds.collect();
            assert!(KINDS.iter().all(|kind| kinds.contains(kind)), "{name}: {kinds:?}");
        }
    }

    #[test]
    fn a_session_is_open_until_it_ends_and_counted_for_ever() {
        let kind = "of this test";
        let figures = || (BEGUN.with_label_values(&[kind]).get(), OPEN.with_label_values(&[kind]).get());
        let session = Session::begin(kind);
        assert_eq!(figures(), (1, 1));
        drop(session);
        assert_eq!(figures(), (1, 0));
    }
}
