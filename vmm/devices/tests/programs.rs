//! The programs of `tests/fuzz/vmm` without a fuzzer: each of its seeds, and programs made of them at
//! random. The fuzzer finds faults that take hours. This test shows only if faults found before stay mended.

#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used)]

#[path = "../../../tests/fuzz/vmm/src/bytes.rs"]
mod bytes;
#[path = "../../../tests/fuzz/vmm/src/files.rs"]
mod files;
#[path = "../../../tests/fuzz/vmm/src/fuse.rs"]
mod fuse;
#[path = "../../../tests/fuzz/vmm/src/host.rs"]
mod host;
#[path = "../../../tests/fuzz/vmm/src/leftovers.rs"]
mod leftovers;
#[path = "../../../tests/fuzz/vmm/src/memory.rs"]
mod memory;
#[path = "../../../tests/fuzz/vmm/src/program.rs"]
mod program;
#[path = "../../../tests/fuzz/vmm/src/queue.rs"]
mod queue;
#[path = "../../../tests/fuzz/vmm/src/requests.rs"]
mod requests;
#[path = "../../../tests/fuzz/vmm/src/share.rs"]
mod share;
#[path = "../../../tests/fuzz/vmm/src/slot.rs"]
mod slot;
#[path = "../../../tests/fuzz/vmm/src/streams.rs"]
mod streams;

use std::path::Path;

/// Programs beside the seeds.
const PROGRAMS: u64 = 400;

/// Bytes changed in one program.
const CHANGES_MAX: u64 = 12;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{}", directory.display());
    files.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn run_all(target: &str, run: fn(&[u8])) {
    let seeds = seeds(target);
    seeds.iter().for_each(|seed| run(seed));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..PROGRAMS {
        let (one, other) = (random(seeds.len() as u64) as usize, random(seeds.len() as u64) as usize);
        let mut program = [&seeds[one][..], &seeds[other]].concat();
        for _ in 0..random(CHANGES_MAX) {
            let at = random(program.len().max(1) as u64) as usize;
            if let Some(byte) = program.get_mut(at) {
                *byte = random(256) as u8;
            }
        }
        run(&program);
    }
}

/// One test, since threads and descriptors are counted for the whole process.
#[test]
fn no_program_of_a_guest_leaves_its_bounds_or_leaves_anything_behind() {
    run_all("virtio_devices", program::run);
    run_all("fs_share", files::run);
    run_all("vsock_mux", streams::run);
}
