//! Tolerations, written as `kubectl taint` writes taints: `key`, `key=value`, `key:Effect`,
//! `key=value:Effect`.

use std::str::FromStr;

use serde::Serialize;

use super::names;

/// Effects of a taint (`k8s.io/api/core/v1`, `TaintEffect`).
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A toleration of pods of the class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Toleration {
    key: String,
    operator: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// `None` for all effects.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<&'static str>,
}

impl FromStr for Toleration {
    type Err = String;

    fn from_str(text: &str) -> Result<Toleration, String> {
        let (taint, effect) = match text.split_once(':') {
            Some((taint, effect)) => (taint, Some(effect)),
            None => (text, None),
        };
        let known = |effect| EFFECTS.into_iter().find(|known| *known == effect);
        let effect = effect
            .map(|effect| known(effect).ok_or_else(|| format!("an effect is one of {}", EFFECTS.join(", "))))
            .transpose()?;
        let (key, value) = match taint.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (taint, None),
        };
        names::key(key)?;
        value.map_or(Ok(()), names::value)?;
        let operator = if value.is_some() { "Equal" } else { "Exists" };
        Ok(Toleration { key: key.to_owned(), operator, value: value.map(str::to_owned), effect })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toleration_is_written_as_a_taint_is() {
        let json = |text: &str| serde_json::to_value(text.parse::<Toleration>().unwrap()).unwrap();
        assert_eq!(json("vm"), serde_json::json!({ "key": "vm", "operator": "Exists" }));
        assert_eq!(
            json("example.com/vm=yes:NoSchedule"),
            serde_json::json!({ "key": "example.com/vm", "operator": "Equal", "value": "yes", "effect": "NoSchedule" })
        );
        for bad in ["", "=a", "a:Never", "a=b c", "a:"] {
            assert!(bad.parse::<Toleration>().is_err(), "{bad}");
        }
    }
}
