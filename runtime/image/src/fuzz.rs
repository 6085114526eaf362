//! Entry points for `tests/fuzz`: the parsers of a registry's data. Only fuzz targets may call them.

use std::io::Read;

use crate::archive::Archive;
use crate::limits::Limits;
use crate::{config, manifest, name};

/// Most entries read from one archive: a fuzzer's time is better spent on the next archive.
const ENTRIES: usize = 1000;

/// Most bytes of holes read from one file.
const HOLES: usize = 1 << 20;

/// Reads a layer's archive and the contents of its files. Returns true if it reached the end.
pub fn archive(bytes: &[u8]) -> bool {
    let mut archive = Archive::new(bytes);
    for _ in 0..ENTRIES {
        match archive.next_entry() {
            Ok(Some(entry)) => {
                let mut content = Vec::new();
                let holes = usize::try_from(entry.holes).unwrap_or(usize::MAX);
                // The unpacking code also limits holes.
                if holes > HOLES || archive.content().read_to_end(&mut content).is_err() {
                    return false;
                }
                assert!(content.len() <= bytes.len() + holes, "a file is larger than its archive and holes");
            }
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
    false
}

/// Parses a manifest or an index, and a config.
pub fn documents(bytes: &[u8]) -> bool {
    let read = manifest::parse("manifest", bytes, &Limits::default()).is_ok();
    config::parse("config", bytes).is_ok() | read
}

/// Parses an image's name.
pub fn image_name(text: &str) -> bool {
    name::Name::parse(text).is_ok()
}
