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
#[path = "../../../tests/fuzz/src/seeds.rs"]
mod seeds;
#[path = "../../../tests/fuzz/vmm/src/share.rs"]
mod share;
#[path = "../../../tests/fuzz/vmm/src/slot.rs"]
mod slot;
#[path = "../../../tests/fuzz/vmm/src/streams.rs"]
mod streams;

/// One test, since threads and descriptors are counted for the whole process.
#[test]
fn no_program_of_a_guest_leaves_its_bounds_or_leaves_anything_behind() {
    seeds::run_all("virtio_devices", program::run);
    seeds::run_all("fs_share", files::run);
    seeds::run_all("vsock_mux", streams::run);
}
