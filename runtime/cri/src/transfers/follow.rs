//! The answer of both RPCs: the progress of the work, a few times a second at most, and its end.
//!
//! ```text
//!   the current view ──► [a pause ──► the next change ──► the view then]… ──► the images, or the failure
//! ```
//! A slow client gets fewer views, and each of them is the latest.

use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use proto_images::v1::{self, Progress};
use runtime_image::{Image, LayerState, LayerView, PullState, PullView, Running};
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::Status;
use tracing::{debug, warn};

use crate::error::Failure;
use crate::stream::Streamed;
use crate::upstream::Upstream;

/// The pause between two views: people see ten in a second as one movement.
const PAUSE: Duration = Duration::from_millis(100);

/// The parts of an answer beside the work itself.
pub(super) struct Follower {
    pub(super) rpc: &'static str,
    pub(super) stopping: watch::Receiver<bool>,
    pub(super) upstream: Option<Arc<Upstream>>,
}

struct Following<T> {
    follower: Follower,
    running: Running<T>,
    is_first: bool,
}

impl Follower {
    /// The answer following this work. `images` converts the work's result.
    pub(super) fn follow<T: Clone + Send + Sync + 'static>(
        self,
        running: Running<T>,
        images: fn(T) -> Vec<Image>,
    ) -> Streamed<Progress> {
        let following = Following { follower: self, running, is_first: true };
        Box::pin(stream::unfold(Some(following), move |following| async move {
            Some(following?.next(images).await)
        }))
    }

    fn ended(&self, view: PullView, images: Vec<Image>) -> Progress {
        debug!(rpc = self.rpc, images = images.len(), "answered");
        for image in &images {
            let mut names = vec![image.id.clone(), view.name.clone()];
            names.extend(image.repo_tags.iter().chain(&image.repo_digests).cloned());
            if let Some(upstream) = &self.upstream {
                upstream.arrived(&names);
            }
        }
        Progress {
            state: v1::State::Done.into(),
            images: images.into_iter().map(of_image).collect(),
            ..progress(view)
        }
    }
}

impl<T: Clone> Following<T> {
    /// The next message, and the rest of the answer unless it is the last.
    async fn next(mut self, images: fn(T) -> Vec<Image>) -> (Result<Progress, Status>, Option<Self>) {
        let Following { follower, running, is_first } = &mut self;
        let mut end = running.clone();
        let changed = async {
            if !std::mem::take(is_first) {
                sleep(PAUSE).await;
                running.changed().await;
            }
            running.view()
        };
        let stopped = async {
            // An error means that the daemon is gone, so no client is left.
            let _ = follower.stopping.wait_for(|stopping| *stopping).await;
        };
        tokio::select! {
            biased;
            ended = end.ended() => {
                let answer = ended.map(|done| follower.ended(end.view(), images(done)));
                (answer.map_err(|error| failed(follower.rpc, error.into())), None)
            }
            () = stopped => {
                (Err(Status::unavailable("the daemon stops")), None)
            }
            view = changed => (Ok(progress(view)), Some(self)),
        }
    }
}

fn failed(rpc: &'static str, failure: Failure) -> Status {
    let status = Status::from(failure);
    warn!(rpc, code = ?status.code(), message = status.message(), "failed");
    status
}

fn progress(view: PullView) -> Progress {
    let state = match view.state {
        PullState::Waiting => v1::State::Waiting,
        PullState::Receiving => v1::State::Receiving,
        PullState::Resolving => v1::State::Resolving,
        PullState::Layers => v1::State::Layers,
        PullState::Writing => v1::State::Writing,
    };
    Progress {
        state: state.into(),
        name: view.name,
        received_bytes: view.received_bytes,
        layers: view.layers.into_iter().map(of_layer).collect(),
        images: Vec::new(),
    }
}

fn of_layer(layer: LayerView) -> v1::Layer {
    use v1::layer::State;
    let state = match layer.state {
        LayerState::Waiting => State::Waiting,
        LayerState::Downloading => State::Downloading,
        LayerState::Converting => State::Converting,
        LayerState::Exists => State::Exists,
        LayerState::Done => State::Done,
    };
    let LayerView { digest, received_bytes, total_bytes, .. } = layer;
    v1::Layer { digest, received_bytes, total_bytes, state: state.into() }
}

fn of_image(image: Image) -> v1::Image {
    let Image { id, repo_tags, repo_digests, .. } = image;
    v1::Image { id, repo_tags, repo_digests }
}
