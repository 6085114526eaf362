//! The format number of a saved state.

/// The state's format; a VMM reads only its own.
pub(super) const FORMAT: u32 = 3;
