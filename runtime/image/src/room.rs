//! Checks the disk's free space for an image before any layer is fetched. A pull filling the disk would take
//! space from everything else on it, and fail anyway. Owns the estimate; never frees anything.

use std::collections::HashSet;
use std::fs;

use crate::digest::digest_hex;
use crate::error::ImageError;
use crate::free;
use crate::manifest::Descriptor;
use crate::store::Store;

/// A layer, and its diff id.
type Wanted = (Descriptor, String);

/// Fails if the store's disk has less free space than the least possible size of the layers. `blobs_are_here`
/// is set if their blobs are already on the disk. Blocks on the disk.
pub(crate) fn check(store: &Store, layers: &[Wanted], blobs_are_here: bool) -> Result<(), ImageError> {
    free::has(store.directory(), wanted(store, layers, blobs_are_here))
}

/// Bytes of missing blobs, and of their unpacked contents, for all missing layers. Contents are hardly ever
/// smaller than their compressed form.
fn wanted(store: &Store, layers: &[Wanted], blobs_are_here: bool) -> u64 {
    let (mut known, blobs) = (HashSet::new(), store.blobs());
    let missing =
        layers.iter().filter(|(_, diff_id)| known.insert(diff_id) && store.layer(diff_id).is_none());
    let bytes = missing.map(|(layer, _)| {
        if blobs_are_here {
            return layer.size;
        }
        let Ok(hex) = digest_hex(&layer.digest) else { return 0 };
        let there = |name: String| fs::metadata(blobs.join(name)).map(|metadata| metadata.len());
        let here = there(hex.to_owned()).or_else(|_| there(format!("{hex}.partial"))).unwrap_or(0);
        layer.size.saturating_sub(here).saturating_add(layer.size)
    });
    bytes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_that_are_there_take_no_room_and_a_part_takes_less() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let layer = |digit: char, size| {
            let digest = format!("sha256:{}", digit.to_string().repeat(64));
            (Descriptor { digest: digest.clone(), size, part: "layer".into() }, digest)
        };
        let layers = [layer('a', 100), layer('b', 10), layer('b', 10), layer('c', 1)];
        assert_eq!(wanted(&store, &layers, false), 2 * 111);
        fs::write(store.blobs().join("a".repeat(64)), [0; 100]).unwrap();
        fs::write(store.blobs().join("b".repeat(64) + ".partial"), [0; 4]).unwrap();
        assert_eq!(wanted(&store, &layers, false), 111 + 7);
        assert_eq!(wanted(&store, &layers, true), 111);
        assert_eq!(wanted(&store, &[layer('a', u64::MAX), layer('b', u64::MAX)], false), u64::MAX);
    }
}
