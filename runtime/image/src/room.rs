//! Whether the disk can take an image, asked before any layer is fetched: a pull that fills the disk takes the room of
//! everything else on it, and fails all the same. Owns the estimate; never frees anything.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::error::ImageError;
use crate::manifest::Descriptor;
use crate::name::digest_hex;

/// Fails where the disk of `directory` has less room than the image takes at the very least. Blocks on the disk.
pub(crate) fn check(directory: &Path, blobs: &Path, layers: &[Descriptor]) -> Result<(), ImageError> {
    let found = rustix::fs::statvfs(directory).map_err(std::io::Error::from);
    let found = found.map_err(ImageError::disk("asking for the room of", directory))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let wanted = wanted(blobs, layers);
    match free < wanted {
        true => Err(ImageError::NoRoom { path: directory.to_owned(), wanted, free }),
        false => Ok(()),
    }
}

/// The bytes of blobs that are still to come, and twice what they unpack to: the layers' contents and the image's file are
/// there side by side. Contents are hardly ever smaller than they are compressed.
fn wanted(blobs: &Path, layers: &[Descriptor]) -> u64 {
    let mut known = HashSet::new();
    let missing = layers.iter().filter(|layer| known.insert(&layer.digest)).map(|layer| {
        let Ok(hex) = digest_hex(&layer.digest) else { return 0 };
        let there = |name: String| fs::metadata(blobs.join(name)).map(|metadata| metadata.len());
        let bytes = there(hex.to_owned()).or_else(|_| there(format!("{hex}.partial"))).unwrap_or(0);
        layer.size.saturating_sub(bytes)
    });
    let unpacked = layers.iter().map(|layer| layer.size.saturating_mul(2));
    missing.chain(unpacked).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_that_are_there_take_no_room_and_a_part_takes_less() {
        let dir = tempfile::tempdir().unwrap();
        let layer = |digit: char, size| {
            let digest = format!("sha256:{}", digit.to_string().repeat(64));
            Descriptor { digest, size, part: "layer".into() }
        };
        let layers = [layer('a', 100), layer('b', 10), layer('b', 10), layer('c', 1)];
        assert_eq!(wanted(dir.path(), &layers), 111 + 242);
        fs::write(dir.path().join("a".repeat(64)), [0; 100]).unwrap();
        fs::write(dir.path().join("b".repeat(64) + ".partial"), [0; 4]).unwrap();
        assert_eq!(wanted(dir.path(), &layers), 7 + 242);
        assert_eq!(wanted(dir.path(), &[layer('a', u64::MAX), layer('b', u64::MAX)]), u64::MAX);
    }
}
