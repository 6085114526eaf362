//! Runs work that blocks on the disk outside the async threads. Owns no work.

use std::sync::LazyLock;

use runtime_blocking::Pool;

use crate::error::ImageError;

/// Most threads unpacking layers and writing images at once. A layer's thread waits for its registry too, and
/// a pull handles three layers at once.
const LAYER_THREADS: usize = 64;

/// Most threads waiting for other files: the index, and blobs being opened.
const FILE_THREADS: usize = 16;

/// Most threads receiving archives from clients. A client may be slow, and an archive takes disk space until
/// its images are created. This bounds both.
pub(crate) const IMPORTS_AT_ONCE: usize = 2;

static LAYERS: LazyLock<Pool> = LazyLock::new(|| Pool::new("layers and their disk", LAYER_THREADS));
static FILES: LazyLock<Pool> = LazyLock::new(|| Pool::new("the disk of images", FILE_THREADS));
static IMPORTS: LazyLock<Pool> = LazyLock::new(|| Pool::new("archives and their clients", IMPORTS_AT_ONCE));

/// Runs work that blocks on the index or on blobs.
pub(crate) async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    run(&FILES, what, work).await
}

/// Runs work that blocks for as long as a layer takes.
pub(crate) async fn blocking_on_layer<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    run(&LAYERS, what, work).await
}

/// Runs work that blocks for as long as the client of an archive takes.
pub(crate) async fn blocking_on_client<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    run(&IMPORTS, what, work).await
}

/// Waits for a thread as long as the pull may take.
async fn run<T: Send + 'static>(
    pool: &Pool,
    what: &'static str,
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    pool.place().await.run(work).await.unwrap_or(Err(ImageError::Interrupted(what)))
}

/// A value with a blocking drop. It is dropped on a thread for such work.
#[derive(Debug)]
pub(crate) struct DroppedAside<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> DroppedAside<T> {
    pub(crate) fn new(value: T) -> Self {
        DroppedAside(Some(value))
    }

    /// Drops the value here, on a thread allowed to block on the disk.
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
            runtime.spawn(async move { FILES.place().await.run(move || drop(value)).await });
        }
    }
}
