//! A running pull or import for its waiting callers: the latest view of it, and its end. The work continues
//! without any caller.

use tokio::sync::watch;

use crate::error::ImageError;
use crate::progress::PullView;

/// A running pull or import. Clones refer to the same work.
#[derive(Debug, Clone)]
pub struct Running<T> {
    view: watch::Receiver<PullView>,
    outcome: watch::Receiver<Option<Result<T, ImageError>>>,
    /// The work, for an error.
    what: &'static str,
}

/// The sending side for the result.
pub(crate) type End<T> = watch::Sender<Option<Result<T, ImageError>>>;

impl<T: Clone> Running<T> {
    pub(crate) fn new(view: watch::Receiver<PullView>, what: &'static str) -> (Running<T>, End<T>) {
        let (end, outcome) = watch::channel(None);
        (Running { view, outcome, what }, end)
    }

    /// Returns the current view.
    pub fn view(&mut self) -> PullView {
        self.view.borrow_and_update().clone()
    }

    /// Waits for a change since the last [`view`](Self::view). Never returns after the end.
    pub async fn changed(&mut self) {
        if self.view.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for the end of the work.
    ///
    /// # Errors
    /// Any [`ImageError`]. Its kind shows how a caller can react.
    pub async fn ended(&mut self) -> Result<T, ImageError> {
        match self.outcome.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(result)) => result.clone(),
            _ => Err(ImageError::Interrupted(self.what)),
        }
    }
}
