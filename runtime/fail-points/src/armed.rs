//! The points of an armed process, as a trait object. An unarmed program refers to no implementation, so the
//! linker leaves it out.

use std::io;
use std::pin::Pin;
use std::sync::OnceLock;

use crate::point::Point;

/// A step in a task, on its way.
pub(crate) type Passing<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>>;

/// The acts of an armed process at its points.
pub(crate) trait Armed: Send + Sync {
    /// Passes a point, on a blocking thread.
    fn pass(&self, point: Point) -> io::Result<()>;

    /// Passes a point in a task.
    fn pass_async(&self, point: Point) -> Passing<'_>;
}

/// Empty in a process that is not armed.
pub(crate) static ARMED: OnceLock<Box<dyn Armed>> = OnceLock::new();
