//! The form of a saved state, and its bound.

/// The form of the state; a VMM reads its own alone.
pub(super) const FORMAT: u32 = 1;

/// Longest state in bytes. A vCPU takes some 25 KiB, and there are 64 at most.
pub const STATE_BYTES_MAX: usize = 8 << 20;
