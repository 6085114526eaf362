//! The daemon's own service for images (`proto/images`): pulls and imports with their progress. Each RPC has
//! a file; both end in `follow.rs`, which sends the progress. `runtime/image` does the work, and continues
//! without a follower.

mod follow;
mod import;
mod pull;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use proto_images::v1::images_server::{Images as Service, ImagesServer};
use proto_images::v1::{ImportRequest, Progress, PullRequest};
use runtime_image::Images;
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use self::follow::Follower;
use crate::stream::Streamed;
use crate::upstream::Upstream;

/// Longest request, in bytes: a piece of an archive and its framing.
const REQUEST_BYTES_MAX: usize = (1 << 20) + 1024;

/// The service over the daemon's images.
#[derive(Clone, Debug)]
pub(crate) struct Transfers {
    images: Images,
    stopping: Arc<watch::Sender<bool>>,
    /// The runtime behind this one. Arrived images are recorded here for its calls.
    upstream: Option<Arc<Upstream>>,
}

impl Transfers {
    pub(crate) fn new(
        images: Images,
        stopping: Arc<watch::Sender<bool>>,
        upstream: Option<Arc<Upstream>>,
    ) -> Transfers {
        Transfers { images, stopping, upstream }
    }

    /// Converts the service for use in a server.
    pub(crate) fn server(self) -> ImagesServer<Transfers> {
        ImagesServer::new(self).max_decoding_message_size(REQUEST_BYTES_MAX)
    }

    fn follower(&self, rpc: &'static str) -> Follower {
        Follower { rpc, stopping: self.stopping.subscribe(), upstream: self.upstream.clone() }
    }
}

#[tonic::async_trait]
impl Service for Transfers {
    type PullStream = Streamed<Progress>;
    type ImportStream = Streamed<Progress>;

    async fn pull(&self, request: Request<PullRequest>) -> Result<Response<Self::PullStream>, Status> {
        let running = pull::pull(&self.images, request.into_inner())?;
        Ok(Response::new(self.follower("Pull").follow(running, |image| vec![image])))
    }

    async fn import(
        &self,
        requests: Request<Streaming<ImportRequest>>,
    ) -> Result<Response<Self::ImportStream>, Status> {
        let running = import::import(&self.images, requests.into_inner()).await?;
        Ok(Response::new(self.follower("Import").follow(running, |images| images)))
    }
}
