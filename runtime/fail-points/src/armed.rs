//! The points of an armed process, as a trait object: an unarmed program refers to nothing that implements it, so the linker leaves
//! that out.

use std::io;
use std::pin::Pin;
use std::sync::OnceLock;

use crate::point::Point;

/// A step in a task, on its way.
pub(crate) type Passing<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>>;

/// The acts of an armed process at its points.
pub(crate) trait Armed: Send + Sync {
    /// Passes a point, on a thread that may block.
    fn pass(&self, point: Point) -> io::Result<()>;

    /// Passes a point in a task.
    fn pass_async(&self, point: Point) -> Passing<'_>;
}

/// Empty in a process that is not armed.
pub(crate) static ARMED: OnceLock<Box<dyn Armed>> = OnceLock::new();
