//! Metrics of pulls.

use std::sync::LazyLock;

use prometheus::{IntCounter, IntCounterVec, register_int_counter, register_int_counter_vec};

use crate::error::{ImageError, ImageErrorKind};

const ONCE: &str = "each name is registered in one place";

static PULLS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "podvisor_image_pulls_total",
        "Pulls of images that have ended, by outcome; callers that wait for one pull share it.",
        &["outcome"]
    )
    .expect(ONCE)
});

static BYTES: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "podvisor_image_pull_bytes_total",
        "Bytes of blobs that registries have sent and that are on disk."
    )
    .expect(ONCE)
});

/// The outcomes of pulls.
const OK: &str = "ok";
const REFUSED: &str = "refused";
const ERROR: &str = "error";

/// Registers the counters with zeros: an alert on an increase needs the value before the first event.
pub(crate) fn register() {
    for outcome in [OK, REFUSED, ERROR] {
        PULLS.with_label_values(&[outcome]);
    }
    LazyLock::force(&BYTES);
}

/// Counts the end of a pull.
pub(crate) fn pulled<T>(result: &Result<T, ImageError>) {
    PULLS.with_label_values(&[outcome(result)]).inc();
}

/// A misspelt name or a missing right is the author's of the pod, and nothing for the operator of the node.
fn outcome<T>(result: &Result<T, ImageError>) -> &'static str {
    use ImageErrorKind::{Denied, Name, NotFound, Unauthenticated};
    match result.as_ref().map_err(ImageError::kind) {
        Ok(_) => OK,
        Err(Name | NotFound | Unauthenticated | Denied) => REFUSED,
        Err(_) => ERROR,
    }
}

/// Counts bytes of a blob.
pub(crate) fn received(bytes: usize) {
    BYTES.inc_by(bytes as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_no_failure_of_the_node() {
        let (registry, what) = ("r.example".to_owned(), "manifest r.example/x:lates".to_owned());
        assert_eq!(outcome(&Ok(())), "ok");
        let missing = ImageError::NotFound { registry: registry.clone(), what: what.clone() };
        assert_eq!(outcome::<()>(&Err(missing)), "refused");
        let denied = ImageError::Denied { registry, what: what.clone(), said: String::new() };
        assert_eq!(outcome::<()>(&Err(denied)), "refused");
        assert_eq!(outcome::<()>(&Err(ImageError::Deadline { what, seconds: 90 })), "error");
    }
}
