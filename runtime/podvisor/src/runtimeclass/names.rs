//! Names as Kubernetes' API server checks them, so the printed text can be applied (k8s.io/apimachinery,
//! `util/validation`). Errors are for people, without the name.

/// Longest label of a DNS name, and longest name or value of a label, in bytes.
const LABEL_MAX: usize = 63;

/// Longest DNS name, in bytes.
const SUBDOMAIN_MAX: usize = 253;

/// Checks a label of a DNS name (RFC 1123), as a handler's name is.
pub(super) fn label(name: &str) -> Result<(), String> {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends = !name.starts_with('-') && !name.ends_with('-');
    if name.is_empty() || name.len() > LABEL_MAX || !ends || !name.bytes().all(inside) {
        return Err(format!(
            "a name has 1 to {LABEL_MAX} letters in lower case, digits and hyphens, and no hyphen at an end"
        ));
    }
    Ok(())
}

/// Checks a DNS name (RFC 1123), as a RuntimeClass' name is.
pub(super) fn subdomain(name: &str) -> Result<(), String> {
    if name.len() > SUBDOMAIN_MAX {
        return Err(format!("a name has at most {SUBDOMAIN_MAX} characters"));
    }
    name.split('.').try_for_each(label)
}

/// Checks the key of a label of an object, with or without a prefix.
pub(super) fn key(key: &str) -> Result<(), String> {
    let name = match key.split_once('/') {
        Some((prefix, name)) => {
            subdomain(prefix)?;
            name
        }
        None => key,
    };
    if name.is_empty() {
        return Err("a key has a name".into());
    }
    value(name)
}

/// Checks the value of a label of an object. It may be empty.
pub(super) fn value(value: &str) -> Result<(), String> {
    let at_end = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let mut bytes = value.bytes();
    if value.len() > LABEL_MAX || !value.bytes().all(inside) || !at_end(bytes.next()) || !at_end(bytes.last())
    {
        return Err(format!(
            "a label has at most {LABEL_MAX} letters, digits, hyphens, underscores and dots, and begins and ends with a \
             letter or digit"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_an_api_server_takes_are_taken_and_no_others() {
        let long = "a".repeat(64);
        for good in ["podvisor", "a", "0-a9"] {
            assert_eq!((label(good), subdomain(&format!("{good}.b"))), (Ok(()), Ok(())), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a b", "ä", &long] {
            assert!(label(bad).is_err() && subdomain(&format!("b.{bad}")).is_err(), "{bad}");
        }
        let most = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61)].join(".");
        assert!(subdomain(&most).is_ok() && subdomain(&format!("{most}d")).is_err());
    }

    #[test]
    fn labels_that_an_api_server_takes_are_taken_and_no_others() {
        let long = format!("example.com/{}", "a".repeat(64));
        for good in ["podvisor.io/runtime", "disk", "A_b.C-0", "kubernetes.io/arch"] {
            assert_eq!(key(good), Ok(()), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "_a", "a.", "Upper.io/a", "a\nb", "a: b", &long] {
            assert!(key(bad).is_err(), "{bad}");
        }
        assert!(value("").is_ok() && value("true").is_ok() && value("1.0").is_ok());
        assert!(value("-").is_err() && value("a b").is_err() && value(&"a".repeat(64)).is_err());
    }
}
