//! Whether a pod stops by itself behind its last container's end. CRI has no field for it, since a kubelet
//! stops its pods. A pod without a kubelet asks for it by an annotation.

use std::collections::BTreeMap;

use crate::{PodSpec, SpecError};

/// Annotation of a pod that stops behind its last container's end.
pub const STOP_WITH_CONTAINERS: &str = "podvisor.io/stop-with-containers";

/// The values of the annotation.
const VALUES: [&str; 2] = ["true", "false"];

impl PodSpec {
    /// Returns true if the pod stops behind its last container's end.
    pub fn stops_with_containers(&self) -> bool {
        self.annotations.get(STOP_WITH_CONTAINERS).is_some_and(|value| value == VALUES[0])
    }
}

/// Refuses a value that is neither `true` nor `false`.
pub(crate) fn check(annotations: &BTreeMap<String, String>) -> Result<(), SpecError> {
    match annotations.get(STOP_WITH_CONTAINERS) {
        Some(text) if !VALUES.contains(&text.as_str()) => {
            let reason = format!("{STOP_WITH_CONTAINERS} is {text:?}, neither true nor false");
            Err(SpecError::invalid("annotations", reason))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pod_that_asks_for_it_stops_by_itself() {
        let of = |value: &str| {
            let annotations = [(STOP_WITH_CONTAINERS.to_owned(), value.to_owned())].into();
            let pod = PodSpec { annotations, ..PodSpec::default() };
            check(&pod.annotations).map(|()| pod.stops_with_containers()).map_err(|error| error.to_string())
        };
        assert!(!PodSpec::default().stops_with_containers());
        assert_eq!((of("true"), of("false")), (Ok(true), Ok(false)));
        for wrong in ["", "yes", "True"] {
            let error = of(wrong).unwrap_err();
            assert!(error.starts_with("annotations: podvisor.io/stop-with-containers is "), "{error}");
        }
    }
}
