//! Work that waits for the disk, beside the async threads. Owns no work.

use std::sync::LazyLock;

use runtime_blocking::Pool;

use crate::error::ImageError;

/// Threads that may unpack layers and write images at once. A layer's thread waits for its registry, too; a pull has three
/// layers under way.
const LAYER_THREADS: usize = 64;

/// Threads that may wait for the other files: the index, blobs that are opened.
const FILE_THREADS: usize = 16;

/// Threads that may take archives from their clients, which may keep them waiting. An archive takes room on the disk until its
/// images are made: so many do at once.
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

/// Waits for a place as long as the pull may take.
async fn run<T: Send + 'static>(
    pool: &Pool,
    what: &'static str,
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    pool.place().await.run(work).await.unwrap_or(Err(ImageError::Interrupted(what)))
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
            runtime.spawn(async move { FILES.place().await.run(move || drop(value)).await });
        }
    }
}
