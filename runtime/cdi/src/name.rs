//! Names: `vendor/class` is the kind of a file's devices, `vendor/class=name` a device. Pure.
//!
//! The allowed characters are those of the CDI library, the lengths those of the specification ("Kind").

use std::fmt;
use std::str::FromStr;

/// Longest vendor: a DNS subdomain.
const VENDOR_BYTES_MAX: usize = 253;

/// Longest class.
const CLASS_BYTES_MAX: usize = 63;

/// The kind of a file's devices: vendor and class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    vendor: String,
    class: String,
}

/// The qualified name of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceName {
    kind: Kind,
    name: String,
}

/// An invalid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum NameError {
    #[error("{0:?} is no qualified name of a device, vendor/class=name")]
    Device(String),
    #[error("{0:?} is no kind of devices, vendor/class")]
    Kind(String),
    #[error(
        "the {part} {text:?} begins with {at_start} and ends with a letter or digit, between them are {between}"
    )]
    Letters { part: &'static str, text: String, at_start: &'static str, between: &'static str },
    #[error("the {part} of {text:?} is longer than {bytes_max} bytes")]
    Long { part: &'static str, text: String, bytes_max: usize },
}

impl DeviceName {
    /// The device `name` of a kind.
    ///
    /// # Errors
    /// The name breaks the syntax.
    pub fn new(kind: Kind, name: &str) -> Result<DeviceName, NameError> {
        let starts = name.starts_with(|first: char| first.is_ascii_alphanumeric());
        if !(starts && is_tail(name, "_-.:")) {
            let (at_start, between) = ("a letter or digit", "letters, digits, '_', '-', '.' and ':'");
            return Err(NameError::Letters { part: "name", text: name.to_owned(), at_start, between });
        }
        Ok(DeviceName { kind, name: name.to_owned() })
    }

    /// Vendor and class.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The name among the devices of its kind.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for DeviceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<DeviceName, NameError> {
        let unqualified = || NameError::Device(text.to_owned());
        let (kind, name) = text.split_once('=').ok_or_else(unqualified)?;
        if name.is_empty() || !kind.contains('/') {
            return Err(unqualified());
        }
        DeviceName::new(kind.parse()?, name)
    }
}

impl FromStr for Kind {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Kind, NameError> {
        let Some((vendor, class)) = text.split_once('/') else {
            return Err(NameError::Kind(text.to_owned()));
        };
        for (part, value, bytes_max) in
            [("vendor", vendor, VENDOR_BYTES_MAX), ("class", class, CLASS_BYTES_MAX)]
        {
            if value.len() > bytes_max {
                return Err(NameError::Long { part, text: text.to_owned(), bytes_max });
            }
            let starts = value.starts_with(|first: char| first.is_ascii_alphabetic());
            if !(starts && is_tail(value, "_-.")) {
                let (at_start, between) = ("a letter", "letters, digits, '_', '-' and '.'");
                return Err(NameError::Letters { part, text: value.to_owned(), at_start, between });
            }
        }
        Ok(Kind { vendor: vendor.to_owned(), class: class.to_owned() })
    }
}

/// Returns true if the text ends with a letter or digit, and holds only these and characters of `between`.
fn is_tail(text: &str, between: &str) -> bool {
    text.ends_with(|last: char| last.is_ascii_alphanumeric())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || between.contains(letter))
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.vendor, self.class)
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_vendors_in_use_are_names() {
        for good in
            ["vendor.com/net=eth0", "v/d=1", "nvidia.com/gpu=GPU-1:0", "k8s.x.y/class.b-c_d=a_b.c:d-e"]
        {
            assert_eq!(good.parse::<DeviceName>().unwrap().to_string(), good);
        }
    }

    #[test]
    fn a_text_that_is_no_name_is_refused_and_quoted() {
        for bad in [
            "",
            "gpu",
            "v/d",
            "v=1",
            "/d=1",
            "v/=1",
            "v/d=",
            "1v/d=1",
            "v/1d=1",
            "v/d=-1",
            "v/d=a b",
            "v/d=1-",
            "v/d/e=1",
            "v/d=a=b",
            " v/d=1",
            "v/d=1,v/d=2",
            "v-/d=1",
            "v/d-=1",
            "v/d=ä",
            "v\0/d=1",
            "/dev/null",
        ] {
            assert!(bad.parse::<DeviceName>().is_err(), "{bad:?}");
        }
        let error = "v/d=a b".parse::<DeviceName>().unwrap_err();
        assert!(error.to_string().contains("name \"a b\""), "{error}");
    }

    #[test]
    fn vendors_and_classes_are_as_long_as_the_specification_says() {
        let kind = |vendor: usize, class: usize| format!("{}/{}", "v".repeat(vendor), "c".repeat(class));
        kind(253, 63).parse::<Kind>().unwrap();
        let long = kind(254, 63).parse::<Kind>().unwrap_err();
        assert!(long.to_string().starts_with("the vendor of"), "{long}");
        let long = kind(253, 64).parse::<Kind>().unwrap_err();
        assert!(long.to_string().ends_with("longer than 63 bytes"), "{long}");
    }

    proptest! {
        #[test]
        fn every_name_of_the_syntax_is_read_back_as_written(
            vendor in "[a-zA-Z]([a-zA-Z0-9_.-]{0,20}[a-zA-Z0-9])?",
            class in "[a-zA-Z]([a-zA-Z0-9_.-]{0,20}[a-zA-Z0-9])?",
            name in "[a-zA-Z0-9]([a-zA-Z0-9_.:-]{0,20}[a-zA-Z0-9])?",
        ) {
            let text = format!("{vendor}/{class}={name}");
            let read: DeviceName = text.parse().unwrap();
            prop_assert_eq!(read.to_string(), text);
            prop_assert_eq!(read.kind().to_string(), format!("{vendor}/{class}"));
            prop_assert_eq!(read.name(), name);
        }

        #[test]
        fn a_name_that_is_read_is_of_the_syntax(text in ".{0,40}|[a-c/=,:. _-]{0,12}") {
            if let Ok(name) = text.parse::<DeviceName>() {
                prop_assert_eq!(name.to_string(), text.clone());
                prop_assert_eq!(text.matches(['/', '=']).count(), 2);
                let allowed = |letter: char| letter.is_ascii_alphanumeric() || "_-.:/=".contains(letter);
                prop_assert!(text.chars().all(allowed));
                let outer = |part: &str, at: fn(&str) -> Option<char>| {
                    at(part).is_some_and(|letter| letter.is_ascii_alphanumeric())
                };
                for part in text.split(['/', '=']) {
                    prop_assert!(outer(part, |part| part.chars().next()));
                    prop_assert!(outer(part, |part| part.chars().last()));
                }
            }
        }
    }
}
