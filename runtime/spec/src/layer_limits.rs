//! Limits of the containers' writes: for the scratch disk, with all writable layers on it, and for each
//! layer. CRI has no fields for them. So a handler has limits, and a pod's annotations may name lower ones.
//! Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::SpecError;
use crate::quantity::quantity;

/// Annotation with the size of the pod's scratch disk.
const SCRATCH: &str = "podvisor.io/scratch-size";

/// Annotation with the limit of each container's layer.
const EACH_LAYER: &str = "podvisor.io/writable-layer-limit";

/// Annotation with the limit of one container's layer: this prefix, then the container's name.
const ONE_LAYER: &str = "writable-layer-limit.podvisor.io/";

/// Smallest scratch disk, in bytes: the size of its template.
const SCRATCH_MIN: u64 = 64 << 20;

/// Smallest limit of a layer, in bytes: room for the directories of a container's mounts.
const LAYER_MIN: u64 = 1 << 20;

/// A scratch disk is a whole number of these, in bytes.
const SCRATCH_GRAIN: u64 = 1 << 20;

/// Limits of a pod's writable layers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LayerLimits {
    /// Most bytes of a container's layer. `None` for no limit but the scratch disk's.
    each: Option<u64>,
    /// Lower limits, by the container's name.
    by_container: BTreeMap<String, u64>,
}

impl LayerLimits {
    /// The limits of a pod with these annotations, if the handler allows `most` bytes for each layer.
    ///
    /// # Errors
    /// A value is no quantity, less than 1 MiB, or more than the handler allows.
    pub fn of(annotations: &BTreeMap<String, String>, most: Option<u64>) -> Result<LayerLimits, SpecError> {
        let within = |name: &str, text: &str| bytes(name, text, LAYER_MIN, most);
        let each = annotations.get(EACH_LAYER).map(|text| within(EACH_LAYER, text)).transpose()?.or(most);
        let named = annotations.iter().filter_map(|(name, text)| {
            let container = name.strip_prefix(ONE_LAYER)?;
            Some(within(name, text).map(|bytes| (container.to_owned(), bytes)))
        });
        Ok(LayerLimits { each, by_container: named.collect::<Result<_, _>>()? })
    }

    /// Returns true if no layer has its own limit.
    pub fn is_empty(&self) -> bool {
        *self == LayerLimits::default()
    }

    /// Most bytes of this container's layer. `None` for no limit but the scratch disk's.
    pub fn of_container(&self, name: &str) -> Option<u64> {
        self.by_container.get(name).copied().or(self.each)
    }
}

/// Size in bytes of the scratch disk of a pod with these annotations, if the handler gives `most` bytes.
///
/// # Errors
/// The value is no quantity, less than 64 MiB, or more than the handler gives.
pub fn scratch_bytes(annotations: &BTreeMap<String, String>, most: u64) -> Result<u64, SpecError> {
    let Some(text) = annotations.get(SCRATCH) else { return Ok(most) };
    let asked = bytes(SCRATCH, text, SCRATCH_MIN, Some(most))?;
    Ok(asked.next_multiple_of(SCRATCH_GRAIN).min(most))
}

fn bytes(name: &str, text: &str, least: u64, most: Option<u64>) -> Result<u64, SpecError> {
    let invalid = |why: String| SpecError::invalid("annotations", format!("{name} is {text:?}{why}"));
    let bytes = quantity(text).ok_or_else(|| invalid(", not a quantity".to_owned()))?;
    if bytes < least {
        return Err(invalid(format!(", and is at least {} Mi", least >> 20)));
    }
    match most {
        Some(most) if bytes > most => {
            Err(invalid(format!(", and the pod's handler allows {most} bytes at most")))
        }
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_container_has_its_own_limit_or_the_pods_or_the_handlers() {
        let none = LayerLimits::of(&annotations(&[]), None).unwrap();
        assert!(none.is_empty() && none.of_container("app").is_none());
        let handlers = LayerLimits::of(&annotations(&[]), Some(1 << 30)).unwrap();
        assert_eq!(handlers.of_container("app"), Some(1 << 30));
        let asked = annotations(&[(EACH_LAYER, "512Mi"), ("writable-layer-limit.podvisor.io/log", "2M")]);
        let limits = LayerLimits::of(&asked, Some(1 << 30)).unwrap();
        assert_eq!(
            (limits.of_container("app"), limits.of_container("log")),
            (Some(512 << 20), Some(2_000_000))
        );
    }

    #[test]
    fn a_pod_gets_no_more_than_its_handler_allows() {
        let more = [(EACH_LAYER, "2Gi"), ("writable-layer-limit.podvisor.io/app", "2Gi")];
        for (name, value) in more {
            let error =
                LayerLimits::of(&annotations(&[(name, value)]), Some(1 << 30)).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("1073741824 bytes at most"), "{error}");
        }
        let error = scratch_bytes(&annotations(&[(SCRATCH, "2Gi")]), 1 << 30).unwrap_err().to_string();
        assert!(error.contains("podvisor.io/scratch-size is \"2Gi\""), "{error}");
    }

    #[test]
    fn a_limit_that_makes_no_sense_is_refused_by_its_annotation() {
        for text in ["", "much", "-1", "1023Ki", "0"] {
            let error = LayerLimits::of(&annotations(&[(EACH_LAYER, text)]), None).unwrap_err().to_string();
            assert!(error.starts_with("annotations: podvisor.io/writable-layer-limit"), "{error}");
            scratch_bytes(&annotations(&[(SCRATCH, text)]), 1 << 30).unwrap_err();
        }
        let error = scratch_bytes(&annotations(&[(SCRATCH, "10Mi")]), 1 << 30).unwrap_err().to_string();
        assert!(error.contains("at least 64 Mi"), "{error}");
    }

    #[test]
    fn a_scratch_disk_is_whole_mebibytes_and_the_handlers_unless_the_pod_asks_for_less() {
        assert_eq!(scratch_bytes(&annotations(&[]), 8 << 30).unwrap(), 8 << 30);
        assert_eq!(scratch_bytes(&annotations(&[(SCRATCH, "100M")]), 8 << 30).unwrap(), 96 << 20);
        assert_eq!(scratch_bytes(&annotations(&[(SCRATCH, "8Gi")]), 8 << 30).unwrap(), 8 << 30);
    }
}
