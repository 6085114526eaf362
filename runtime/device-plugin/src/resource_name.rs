//! The name of a resource, with the kubelet's own checks before a registration.

use std::fmt;
use std::str::FromStr;

/// Longest prefix in bytes, including a quota's prefix (RFC 1123 as Kubernetes applies it).
const PREFIX_BYTES_MAX: usize = 253;

/// Longest name after the prefix, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Prefix of the name in a ResourceQuota. The prefixed name must also be valid.
const QUOTA: &str = "requests.";

/// The name of an extended resource: a custom domain, a slash and a name (`IsExtendedResourceName`,
/// pkg/apis/core/v1/helper of Kubernetes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceName(String);

/// A name refused by all kubelets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no name of an extended resource: {reason}")]
pub struct ResourceNameError {
    name: String,
    reason: &'static str,
}

impl ResourceName {
    /// Returns the name as Kubernetes spells it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ResourceName {
    type Err = ResourceNameError;

    fn from_str(name: &str) -> Result<ResourceName, ResourceNameError> {
        match check(name) {
            Ok(()) => Ok(ResourceName(name.to_owned())),
            // A command line can hold a name of any length.
            Err(reason) => Err(ResourceNameError { name: name.chars().take(80).collect(), reason }),
        }
    }
}

fn check(whole: &str) -> Result<(), &'static str> {
    let (prefix, name) = whole.split_once('/').ok_or("it needs a domain and a slash before the name")?;
    if name.contains('/') {
        return Err("it has more than one slash");
    }
    if whole.contains("kubernetes.io/") {
        return Err("names in kubernetes.io are Kubernetes' own");
    }
    if whole.starts_with(QUOTA) {
        return Err("names beginning with \"requests.\" are reserved for quotas");
    }
    if !is_subdomain(prefix) {
        return Err("the part before the slash must be a domain of small letters, digits, '-' and '.'");
    }
    if QUOTA.len() + prefix.len() > PREFIX_BYTES_MAX {
        return Err("the part before the slash has more than 244 bytes");
    }
    if name.len() > NAME_BYTES_MAX {
        return Err("the part behind the slash has more than 63 bytes");
    }
    if !is_name(name) {
        return Err(
            "the part behind the slash must be letters, digits, '-', '_' and '.', with a letter or digit at both ends",
        );
    }
    Ok(())
}

fn is_subdomain(text: &str) -> bool {
    let letter = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.split('.').all(|label| framed(label, letter, |c| letter(c) || c == b'-'))
}

fn is_name(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    framed(text, |c| c.is_ascii_alphanumeric(), inner)
}

/// Returns true if a text is not empty, its first and last bytes satisfy `end`, and all bytes satisfy
/// `inner`.
fn framed(text: &str, end: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.into_iter().all(|byte| byte.is_some_and(&end)) && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_extended_resources_are_taken() {
        for name in ["podvisor.io/vm", "a/b", "example.com/V_m.2-x", "my-domain.x1/0"] {
            assert_eq!(name.parse::<ResourceName>().map(|name| name.to_string()), Ok(name.to_owned()));
        }
        let longest = format!("{}/{}", "a".repeat(244), "b".repeat(63));
        assert!(longest.parse::<ResourceName>().is_ok());
    }

    #[test]
    fn names_that_a_kubelet_refuses_are_refused_with_the_reason() {
        let long_prefix = format!("{}/vm", "a".repeat(245));
        let long_name = format!("podvisor.io/{}", "b".repeat(64));
        for (name, reason) in [
            ("vm", "domain and a slash"),
            ("", "domain and a slash"),
            ("podvisor.io/vm/small", "more than one slash"),
            ("kubernetes.io/vm", "Kubernetes' own"),
            ("x.kubernetes.io/vm", "Kubernetes' own"),
            ("requests.podvisor.io/vm", "for quotas"),
            ("/vm", "before the slash must be"),
            ("Podvisor.io/vm", "before the slash must be"),
            ("podvisor..io/vm", "before the slash must be"),
            ("-podvisor.io/vm", "before the slash must be"),
            ("podvisor_io/vm", "before the slash must be"),
            ("podvisor.io/", "behind the slash must be"),
            ("podvisor.io/-vm", "behind the slash must be"),
            ("podvisor.io/v m", "behind the slash must be"),
            ("podvisor.io/vm\n", "behind the slash must be"),
            (&long_prefix, "more than 244"),
            (&long_name, "more than 63"),
        ] {
            let error = name.parse::<ResourceName>().unwrap_err().to_string();
            assert!(error.contains(reason), "{name:?}: {error}");
        }
    }
}
