//! Entry points for `tests/fuzz`: a file's bytes through all steps. Not for other callers. The return value
//! only says whether the file is valid.

use std::path::PathBuf;

use crate::file::{Language, parse};
use crate::name::DeviceName;

/// A file's content, as JSON.
pub fn json(bytes: &[u8]) -> bool {
    judged(Language::Json, bytes)
}

/// A file's content, as YAML.
pub fn yaml(bytes: &[u8]) -> bool {
    judged(Language::Yaml, bytes)
}

/// A qualified name.
pub fn name(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    text.parse::<DeviceName>().is_ok_and(|name| {
        assert_eq!(name.to_string(), text);
        true
    })
}

fn judged(language: Language, bytes: &[u8]) -> bool {
    match parse(PathBuf::from("/x"), language, bytes) {
        Ok(checked) => {
            assert!(!checked.devices.is_empty());
            true
        }
        Err(fault) => {
            // Each reason can be shown.
            assert!(!fault.to_string().is_empty());
            false
        }
    }
}
