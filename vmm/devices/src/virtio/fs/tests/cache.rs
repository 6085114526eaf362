//! The driver's cache and maps of the share's files, as the share's answers allow.

use std::fs;
use std::mem::offset_of;

use fuse_backend_rs::abi::fuse_abi::{FsOptions, InitOut, Opcode};

use super::{Guest, ROOT, le32, le64, link_with};
use crate::virtio::VirtioDevice as _;
use crate::virtio::fs::{Cache, Fs};

#[test]
fn the_driver_keeps_what_the_cache_says() {
    // FOPEN_DIRECT_IO and FOPEN_KEEP_CACHE (linux/fuse.h).
    for (cache, seconds, flags) in [(Cache::None, 0, 1), (Cache::Auto, 0, 0), (Cache::Always, 24 * 3600, 2)] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "content").unwrap();
        let device = Fs::new("tag", link_with(dir.path(), i32::MAX, cache)).unwrap();
        let mut guest = Guest::over(device, dir);
        let found = guest.lookup(ROOT, "file").unwrap();
        assert_eq!((le64(&found, 16), le64(&found, 24)), (seconds, seconds), "{cache:?}");
        let node = le64(&found, 0);
        let opened = guest.ask(Opcode::Open, node, &[0; 8]).unwrap();
        assert_eq!(le32(&opened, 8) & 3, flags, "{cache:?}");
    }
}

#[test]
fn a_driver_short_of_descriptors_forgets_files_with_their_last_user() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..200 {
        fs::write(dir.path().join(number.to_string()), "content").unwrap();
    }
    let own = i32::try_from(fs::read_dir("/proc/self/fd").unwrap().count()).unwrap();
    // Other tests of this process have some, too.
    let device = Fs::new("tag", link_with(dir.path(), 2 * (own + 100), Cache::Always)).unwrap();
    let mut guest = Guest::over(device, dir);
    let mut lifetime = |number: u32| le64(&guest.lookup(ROOT, &number.to_string()).unwrap(), 16);
    assert_eq!(lifetime(0), 24 * 3600);
    let last = (1..200).map(&mut lifetime).find(|seconds| *seconds == 0);
    assert_eq!(last, Some(0), "all of 200 files are remembered");
    // What is remembered does not keep others from being opened.
    let node = le64(&guest.lookup(ROOT, "0").unwrap(), 0);
    guest.ask(Opcode::Open, node, &[0; 8]).unwrap();
}

/// Bit 36 of the options, in the second word (linux/fuse.h).
const SHARED_MAPS: u32 = 1 << 4;

#[test]
fn a_driver_that_knows_how_maps_files_shared_whose_reads_are_requests() {
    let mut guest = Guest::new();
    let extended = FsOptions::INIT_EXT.bits() as u32;
    let mut agreed = |flags, flags2| le32(&guest.mount_offering(flags, flags2), offset_of!(InitOut, flags2));
    assert_eq!(agreed(extended, SHARED_MAPS), SHARED_MAPS);
    assert_eq!(agreed(extended, u32::MAX), SHARED_MAPS);
    assert_eq!(agreed(extended, !SHARED_MAPS), 0);
    // The second word means nothing to a driver unless it says it has one.
    assert_eq!(agreed(!extended, SHARED_MAPS), 0);
    assert_eq!(guest.device.counts().faults, 0);
}
