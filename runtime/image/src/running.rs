//! Work on images that goes on by itself, as those who wait for it have it: the latest view of it, and its end. Work goes on
//! without anybody who waits.

use tokio::sync::watch;

use crate::error::ImageError;
use crate::progress::PullView;

/// A pull or an import that is under way. Clones are of the same work.
#[derive(Debug, Clone)]
pub struct Running<T> {
    view: watch::Receiver<PullView>,
    outcome: watch::Receiver<Option<Result<T, ImageError>>>,
    /// The work, for an error.
    what: &'static str,
}

/// The side of the work that ends it.
pub(crate) type End<T> = watch::Sender<Option<Result<T, ImageError>>>;

impl<T: Clone> Running<T> {
    pub(crate) fn new(view: watch::Receiver<PullView>, what: &'static str) -> (Running<T>, End<T>) {
        let (end, outcome) = watch::channel(None);
        (Running { view, outcome, what }, end)
    }

    /// The work as it is now.
    pub fn view(&mut self) -> PullView {
        self.view.borrow_and_update().clone()
    }

    /// Waits until the work is not as it was at the last [`view`](Self::view). After the end that is never.
    pub async fn changed(&mut self) {
        if self.view.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for the end of the work.
    ///
    /// # Errors
    /// Any [`ImageError`]; its kind says what can be done about it.
    pub async fn ended(&mut self) -> Result<T, ImageError> {
        match self.outcome.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(result)) => result.clone(),
            _ => Err(ImageError::Interrupted(self.what)),
        }
    }
}
