//! The bandwidth of a pod, which Kubernetes keeps in annotations (the CNI convention for `bandwidth`, and kubelet
//! `pkg/util/bandwidth`). The CNI plugins shape the traffic; this module only reads the numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::SpecError;

/// Limit of what comes to the pod.
const INGRESS: &str = "kubernetes.io/ingress-bandwidth";

/// Limit of what the pod sends.
const EGRESS: &str = "kubernetes.io/egress-bandwidth";

/// Least and most bits in a second (kubelet `validateBandwidthIsReasonable`).
const BITS: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000_000;

/// Longest number that is read, in characters. Kubernetes' own have fewer than 20 digits.
const NUMBER_CHARS_MAX: usize = 24;

/// Limits of a pod's traffic, in bits in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bandwidth {
    /// Limit of what comes to the pod; `None` for no limit.
    pub ingress_bits: Option<u64>,
    /// Limit of what the pod sends; `None` for no limit.
    pub egress_bits: Option<u64>,
}

impl Bandwidth {
    /// The limits that these annotations ask for.
    ///
    /// # Errors
    /// A value is no quantity, or is beyond what Kubernetes takes.
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
                    let reason = format!("{name} is {text:?}, which is no quantity");
                    Err(SpecError::invalid("annotations", reason))
                }
            }
        };
        Ok(Bandwidth { ingress_bits: limit(INGRESS)?, egress_bits: limit(EGRESS)? })
    }
}

/// Reads a quantity of Kubernetes, rounded up to a whole number (apimachinery `resource.Quantity`).
fn quantity(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if number.len() > NUMBER_CHARS_MAX || fraction.contains('.') {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let decimal = |power: u32| 10_u128.checked_pow(power).map(|ten| (ten, 1));
    let (times, over) = match suffix {
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "" => (1, 1),
        "k" => decimal(3)?,
        "M" => decimal(6)?,
        "G" => decimal(9)?,
        "T" => decimal(12)?,
        "P" => decimal(15)?,
        "E" => decimal(18)?,
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => decimal(suffix.strip_prefix(['e', 'E'])?.parse().ok()?)?,
    };
    let over = 10_u128.pow(u32::try_from(fraction.len()).ok()?).checked_mul(over)?;
    u64::try_from(digits.checked_mul(times)?.div_ceil(over)).ok()
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
