//! Places where a test stops, fails or holds the daemon. There is one before each step with an effect outside
//! the daemon's own memory.
//!
//! | subject | where |
//! |---|---|
//! | the points, by name | [`Point`] |
//! | a step about to be made | [`pass`], [`pass_async`] |
//! | the tests' own daemon | [`arm`] |
//! | orders of a test, and the record of passed points | `orders.rs` |
//!
//! All programs share one build of this crate. Only the tests' daemon calls [`arm`], and only `arm` refers to
//! the code for reading orders. The linker therefore leaves this code and the names of the points out of the
//! shipped daemon. There a call only reads one word of memory. A test verifies this
//! (`tests/e2e/tests/e2e/steps`).

#![forbid(unsafe_code)]

mod armed;
mod orders;
mod point;

use std::io;

pub use point::Point;

use crate::armed::ARMED;
use crate::orders::Orders;

/// Arms the points of this process, if its environment names a file of orders. Later calls do nothing.
pub fn arm() {
    if let Some(orders) = Orders::of_environment() {
        ARMED.get_or_init(|| Box::new(orders));
    }
}

/// Passes a point, on a blocking thread.
///
/// # Errors
/// A test has ordered the step to fail.
#[inline]
pub fn pass(point: Point) -> io::Result<()> {
    match ARMED.get() {
        Some(armed) => armed.pass(point),
        None => Ok(()),
    }
}

/// Passes a point in a task. A held point frees its thread.
///
/// # Errors
/// A test has ordered the step to fail.
#[inline]
pub async fn pass_async(point: Point) -> io::Result<()> {
    match ARMED.get() {
        Some(armed) => armed.pass_async(point).await,
        None => Ok(()),
    }
}
