//! The form of a saved state.

/// The form of the state; a VMM reads its own alone.
pub(super) const FORMAT: u32 = 2;
