//! Places where a test stops, fails or holds the daemon: one before each step that leaves something behind outside the
//! daemon's own memory.
//!
//! | what | where |
//! |---|---|
//! | the points, by name | [`Point`] |
//! | a step that is about to be made | [`pass`], [`pass_async`] |
//! | orders of a test, and the record of what was passed | `orders.rs` |
//!
//! Without the feature `fail-points`, which only the tests' own daemon has, both calls are empty and no name is left in
//! the binary.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "fail-points"))]
mod orders;
mod point;

use std::io;

pub use point::Point;

/// Passes a point, on a thread that may block.
///
/// # Errors
/// A test has ordered the step to fail.
#[inline]
pub fn pass(point: Point) -> io::Result<()> {
    #[cfg(feature = "fail-points")]
    if let Some(orders) = orders::Orders::of_environment() {
        return orders.pass(point);
    }
    let _ = point;
    Ok(())
}

/// Passes a point in a task; one that is held lets its thread go.
///
/// # Errors
/// A test has ordered the step to fail.
#[inline]
#[allow(clippy::unused_async, reason = "waits only with the feature")]
pub async fn pass_async(point: Point) -> io::Result<()> {
    #[cfg(feature = "fail-points")]
    if let Some(orders) = orders::Orders::of_environment() {
        return orders.pass_async(point).await;
    }
    let _ = point;
    Ok(())
}
