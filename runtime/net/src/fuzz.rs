//! Doors for `tests/fuzz`: what an operator's files and a plugin's answers hold. Not for others.

use std::path::Path;

use crate::{config, result};

/// A network configuration file.
pub fn configuration(bytes: &[u8]) -> bool {
    config::parse(Path::new("10-fuzz.conflist"), bytes).is_ok()
}

/// A plugin's answer to ADD.
pub fn answer(bytes: &[u8]) -> bool {
    serde_json::from_slice(bytes).is_ok_and(|value| result::read(&value).is_ok())
}
