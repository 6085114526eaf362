//! Work that waits for the disk, beside the async threads. Owns no work.

use tokio::sync::Semaphore;

use crate::error::ImageError;

/// Threads that may wait for images' files at once. A disk that does not answer must not take the threads of others; each
/// layer under way has one, and a pull has three layers.
const THREADS_MAX: usize = 64;

static THREADS: Semaphore = Semaphore::const_new(THREADS_MAX);

/// Runs work that blocks on a thread for such work, of which there are a bounded number.
pub(crate) async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    let permit = THREADS.acquire().await.map_err(|_| ImageError::Interrupted(what))?;
    let work = move || {
        let _permit = permit;
        work()
    };
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(ImageError::Interrupted(what)))
}

/// A value whose drop waits for the disk, and so happens on a thread for such work.
#[derive(Debug)]
pub(crate) struct DroppedAside<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> DroppedAside<T> {
    pub(crate) fn new(value: T) -> Self {
        DroppedAside(Some(value))
    }

    /// Drops the value here, on a thread that may wait for the disk.
    pub(crate) fn drop_here(mut self) {
        drop(self.0.take());
    }

    pub(crate) fn get(&self) -> &T {
        self.0.as_ref().expect("the value is there until the drop")
    }
}

impl<T: Send + 'static> Drop for DroppedAside<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(value));
        }
    }
}
