//! The arithmetic of a VM's size, used by the bounds at boot and by the ledger from then on. Pure.
//!
//! The guest's kernel keeps 64 bytes for each page of 4 KiB, in its own memory: for the pages of that memory,
//! and for those of every image, because it maps images like memory (`devm_memremap_pages`, mm/memremap.c).
//! Memory added later comes in blocks. Each block needs its page structures before its first byte can be
//! used.

use crate::{Kernel, Resources, SpecError};

/// Guest memory comes in multiples of this many bytes: KVM maps it with 2 MiB pages.
pub const MEMORY_GRAIN: u64 = 2 << 20;

/// Smallest VM that boots and runs a container, in bytes.
pub(crate) const MEMORY_MIN: u64 = 64 << 20;

/// Memory in bytes for the small guest kernel, the agent and the page structures of [`IMAGES_WITHIN`], if no
/// overhead is sent.
pub(crate) const GUEST_OVERHEAD: u64 = 52 << 20;

/// Bytes of images covered by the overhead: 8 MiB of page structures. Most pods have no more, so their VM
/// need not grow for each container.
const IMAGES_WITHIN: u64 = 512 << 20;

/// Memory in bytes of a VMM on the node beside the VM's: its own, its stacks and buffers, and KVM's for it.
pub(crate) const VMM_MEMORY: u64 = 16 << 20;

/// Bytes of a VM's memory to one byte of page tables: the VMM's own and KVM's have 8 bytes each for 4 KiB.
pub(crate) const PAGE_TABLES: u64 = 4096 / 16;

/// Bytes of pages to one byte of page structures: `sizeof(struct page)` is 64 on x86.
pub(crate) const PAGE_STRUCTS: u64 = 4096 / 64;

/// The kernel's default CPU period in microseconds.
pub(crate) const CPU_PERIOD: u64 = 100_000;

/// Memory in bytes for containers with these limits.
pub(crate) fn containers_memory(pod: Option<u64>, default: u64, limits: &[Option<u64>]) -> u64 {
    let unlimited = if limits.contains(&None) { default } else { 0 };
    let known = || limits.iter().flatten().copied();
    match pod {
        Some(limit) => limit.max(known().max().unwrap_or(0)).saturating_add(unlimited),
        None => default.max(known().fold(unlimited, u64::saturating_add)),
    }
}

/// CPUs of a quota, rounded up. `None` without a quota.
pub(crate) fn quota_cpus(quota: i64, period: i64) -> Option<u64> {
    let quota = positive(Some(quota))?;
    Some(quota.div_ceil(positive(Some(period)).unwrap_or(CPU_PERIOD)))
}

/// Memory in bytes of the guest itself if no overhead is sent.
pub(crate) const fn guest_overhead(kernel: Kernel) -> u64 {
    GUEST_OVERHEAD + kernel.more_than_small()
}

/// Memory in bytes of the guest itself: the overhead as sent, else [`guest_overhead`].
pub(crate) fn memory_overhead(overhead: Option<&Resources>, kernel: Kernel) -> u64 {
    positive(overhead.map(|r| r.memory_limit_bytes)).unwrap_or(guest_overhead(kernel))
}

/// A number of CRI. Zero and less mean "not requested".
pub(crate) fn positive(value: Option<i64>) -> Option<u64> {
    value.and_then(|v| u64::try_from(v).ok()).filter(|&v| v > 0)
}

/// Memory in bytes for the page structures of `images` bytes of images, beyond those covered by the overhead.
pub(crate) fn image_structs(images: u64) -> u64 {
    images.saturating_sub(IMAGES_WITHIN).div_ceil(PAGE_STRUCTS)
}

/// Memory in bytes of a VM that boots with room for `needed` bytes beside the page structures of its memory.
pub(crate) fn vm_memory(needed: u64) -> u64 {
    let structs = needed.div_ceil(PAGE_STRUCTS - 1);
    whole(needed.saturating_add(structs).max(MEMORY_MIN))
}

/// Memory in bytes of a VM booted with `boot` bytes and needing room for `needed` bytes beside the page
/// structures of its memory. May be less than `boot`.
pub(crate) fn grown_memory(boot: u64, needed: u64) -> u64 {
    let size = vm_memory(needed);
    if size <= boot {
        return size;
    }
    let block = hotplug_block(boot);
    let structs = block / PAGE_STRUCTS;
    let more = needed.saturating_sub(boot - boot.div_ceil(PAGE_STRUCTS));
    let (blocks, rest) = (more / (block - structs), more % (block - structs));
    let added = match rest {
        0 => blocks.saturating_mul(block),
        // A block's structures are complete even if only part of it is used.
        rest => blocks.saturating_mul(block).saturating_add(rest + structs),
    };
    whole(boot.saturating_add(added))
}

/// Boot memory in bytes of a VM wanting `wanted` bytes, if the handler's VMs start from templates of `own`
/// bytes. It is the template's if at least a block of memory is added to it, and `wanted` otherwise.
pub(crate) fn template_memory(wanted: u64, own: u64) -> u64 {
    if wanted >= own.saturating_add(hotplug_block(own)) { own } else { wanted }
}

/// Memory in bytes of the page structures in a VM booted with `boot` bytes and now of `size` bytes.
pub(crate) fn memory_structs(boot: u64, size: u64) -> u64 {
    let added = size.saturating_sub(boot);
    let blocks = added.div_ceil(hotplug_block(boot));
    size.min(boot).div_ceil(PAGE_STRUCTS) + blocks.saturating_mul(hotplug_block(boot) / PAGE_STRUCTS)
}

/// Memory in bytes on the node for a VM of `size` bytes, its VMM included.
pub(crate) fn on_the_node(size: u64) -> u64 {
    size.saturating_add(size.div_ceil(PAGE_TABLES)).saturating_add(VMM_MEMORY)
}

/// Memory in bytes of the largest VM fitting into `room` on the node with its VMM. At least a VM's minimum.
pub(crate) fn fitting(room: u64) -> u64 {
    let bytes =
        u128::from(room.saturating_sub(VMM_MEMORY)) * u128::from(PAGE_TABLES) / u128::from(PAGE_TABLES + 1);
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    (bytes - bytes % MEMORY_GRAIN).max(MEMORY_MIN)
}

/// The bytes rounded up to whole grains of memory.
pub(crate) fn whole(bytes: u64) -> u64 {
    bytes.min(u64::MAX - MEMORY_GRAIN).next_multiple_of(MEMORY_GRAIN)
}

/// Size in bytes of Linux's blocks for adding memory (`probe_memory_block_size`, arch/x86/mm/init_64.c).
fn hotplug_block(boot: u64) -> u64 {
    if boot < 64 << 30 { 128 << 20 } else { 2 << 30 }
}

/// The refusal of a VM larger than its handler allows.
pub(crate) fn beyond(field: &'static str, asked: u64, most: u64) -> SpecError {
    let mib = |bytes: u64| bytes >> 20;
    let reason = format!(
        "the pod's VM would need {} MiB with its overhead, and may have {} MiB",
        mib(asked),
        mib(most)
    );
    SpecError::Beyond { field, reason }
}
