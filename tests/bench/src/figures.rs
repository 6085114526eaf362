//! Durations of the node's clock as counts of instructions.

use std::time::Duration;

/// Virtual nanoseconds per instruction under `-icount shift=1` (2 to the power of the shift).
const NS_PER_INSTRUCTION: f64 = 2.0;

/// Instructions within a duration of the node's clock.
pub(crate) fn instructions(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9 / NS_PER_INSTRUCTION
}

/// Millions of instructions within a duration of the node's clock.
pub(crate) fn millions(duration: Duration) -> f64 {
    instructions(duration) / 1e6
}
