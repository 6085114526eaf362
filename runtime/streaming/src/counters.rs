//! Sessions, counted for those who watch the node.

use std::sync::LazyLock;

use prometheus::{IntCounterVec, IntGaugeVec, register_int_counter_vec, register_int_gauge_vec};

const ONCE: &str = "each name is registered in one place";

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

/// One session; counted as open until it is dropped.
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
    fn a_session_is_open_until_it_ends_and_counted_for_ever() {
        let kind = "of this test";
        let figures = || (BEGUN.with_label_values(&[kind]).get(), OPEN.with_label_values(&[kind]).get());
        let session = Session::begin(kind);
        assert_eq!(figures(), (1, 1));
        drop(session);
        assert_eq!(figures(), (1, 0));
    }
}
