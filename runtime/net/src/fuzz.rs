//! Entry points for `tests/fuzz`: the parsers of operators' files and plugins' answers. Only fuzz targets may
//! call them.

use std::path::Path;

use crate::{config, result};

/// Parses a network configuration file.
pub fn configuration(bytes: &[u8]) -> bool {
    config::parse(Path::new("10-fuzz.conflist"), bytes).is_ok()
}

/// Parses a plugin's answer to ADD.
pub fn answer(bytes: &[u8]) -> bool {
    serde_json::from_slice(bytes).is_ok_and(|value| result::read(&value, "eth0").is_ok())
}
