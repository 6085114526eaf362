//! Doors for `tests/fuzz`: what a registry sends, as far as it is parsed. Not for others.

use std::io::Read;

use crate::archive::Archive;
use crate::limits::Limits;
use crate::{config, manifest, name};

/// Most entries read from one archive: a fuzzer's time is better spent on the next.
const ENTRIES: usize = 1000;

/// A layer's archive, with the contents of its files. Says whether it was read to its end.
pub fn archive(bytes: &[u8]) -> bool {
    let mut archive = Archive::new(bytes);
    for _ in 0..ENTRIES {
        match archive.next_entry() {
            Ok(Some(_)) => {
                let mut content = Vec::new();
                if archive.content().read_to_end(&mut content).is_err() {
                    return false;
                }
                assert!(content.len() <= bytes.len(), "a file is larger than its archive");
            }
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
    false
}

/// A manifest or an index, and a config.
pub fn documents(bytes: &[u8]) -> bool {
    let read = manifest::parse("manifest", bytes, &Limits::default()).is_ok();
    config::parse("config", bytes).is_ok() | read
}

/// An image's name.
pub fn image_name(text: &str) -> bool {
    name::Name::parse(text).is_ok()
}
