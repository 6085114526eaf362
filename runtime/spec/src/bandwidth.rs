//! The bandwidth of a pod, kept by Kubernetes in annotations (the CNI convention for `bandwidth`, and kubelet
//! `pkg/util/bandwidth`). The CNI plugins shape the traffic. This module only reads the numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::SpecError;
use crate::quantity::quantity;

/// Limit of the traffic to the pod.
const INGRESS: &str = "kubernetes.io/ingress-bandwidth";

/// Limit of the traffic from the pod.
const EGRESS: &str = "kubernetes.io/egress-bandwidth";

/// Least and most bits in a second (kubelet `validateBandwidthIsReasonable`).
const BITS: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000_000;

/// Limits of a pod's traffic, in bits in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bandwidth {
    /// Limit of the traffic to the pod. `None` for no limit.
    pub ingress_bits: Option<u64>,
    /// Limit of the traffic from the pod. `None` for no limit.
    pub egress_bits: Option<u64>,
}

impl Bandwidth {
    /// Reads the limits in these annotations.
    ///
    /// # Errors
    /// A value is no quantity, or is outside Kubernetes' bounds.
    pub fn of(annotations: &BTreeMap<String, String>) -> Result<Bandwidth, SpecError> {
        let limit = |name: &str| {
            let Some(text) = annotations.get(name) else { return Ok(None) };
            match quantity(text) {
                Some(bits) if BITS.contains(&bits) => Ok(Some(bits)),
                Some(_) => {
                    let reason = format!("{name} is {text:?}, and may be 1k to 1P");
                    Err(SpecError::invalid("annotations", reason))
                }
                None => {
                    let reason = format!("{name} is {text:?}, not a quantity");
                    Err(SpecError::invalid("annotations", reason))
                }
            }
        };
        Ok(Bandwidth { ingress_bits: limit(INGRESS)?, egress_bits: limit(EGRESS)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: &str) -> Result<Bandwidth, SpecError> {
        Bandwidth::of(&[(name.to_owned(), value.to_owned())].into())
    }

    #[test]
    fn a_limit_is_read_as_kubernetes_writes_it() {
        for (text, bits) in [
            ("1000", 1_000),
            ("1M", 1_000_000),
            ("1.5M", 1_500_000),
            (".5M", 500_000),
            ("10Mi", 10 << 20),
            ("1e6", 1_000_000),
            ("1000500m", 1_001),
        ] {
            let asked = Bandwidth { ingress_bits: Some(bits), egress_bits: None };
            assert_eq!(of(INGRESS, text).unwrap(), asked, "{text}");
            let asked = Bandwidth { ingress_bits: None, egress_bits: Some(bits) };
            assert_eq!(of(EGRESS, text).unwrap(), asked, "{text}");
        }
        assert_eq!(Bandwidth::of(&BTreeMap::new()).unwrap(), Bandwidth::default());
    }

    #[test]
    fn a_limit_that_is_none_is_refused_by_its_annotation() {
        let huge = "9".repeat(30);
        for text in
            ["", "M", "-1M", "1.2.3M", "1X", "999", "2P", "1e99", "1e", &huge, "99999999999999999999E"]
        {
            let refused = of(EGRESS, text).unwrap_err().to_string();
            assert!(
                refused.starts_with("annotations: kubernetes.io/egress-bandwidth"),
                "{text:?}: {refused}"
            );
        }
    }
}
