//! The side of a pod or a container, and calls to either side.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::{Code, Request, Response, Status};
use tower::util::BoxCloneSyncService;

use super::Upstream;
use super::fields;
use super::link::unary;
use super::route::{Call, Listed, Side};
use crate::subject;

/// The services of this daemon, in a server's form.
pub(super) type Ours = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Infallible>;

/// Both sides, for one call.
#[derive(Clone)]
pub(super) struct Sides {
    pub(super) ours: Ours,
    pub(super) upstream: Arc<Upstream>,
}

impl Sides {
    /// Makes the call on one side.
    pub(super) async fn call(
        &self,
        side: Side,
        call: &Call,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        if side == Side::Ours {
            return self.send(side, &call.path, request).await;
        }
        let message = request.get_ref().clone();
        let answer = self.send(side, &call.upstream_path, request).await?;
        self.upstream.note_answer(call.rpc, &message, answer.get_ref());
        Ok(answer)
    }

    /// Makes the call of this path on one side.
    pub(super) async fn send(
        &self,
        side: Side,
        path: &str,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        match side {
            Side::Ours => unary(self.ours.clone(), path, request).await,
            Side::Upstream => self.upstream.link.call(path, request).await,
        }
    }

    /// Makes the call on the side of the pod or container in field 1 of the request. For an id unknown to
    /// both, the side running pods without a handler answers, as on a node with only that side.
    pub(super) async fn call_by_id(
        &self,
        call: &Call,
        listed: Listed,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        let id = fields::text(request.get_ref(), 1).map_err(Status::invalid_argument)?;
        match listed {
            Listed::Containers => subject::container_id(id),
            _ => subject::pod_id(id),
        }
        if let Some(side) = self.upstream.known_side_of(listed, id)? {
            return self.call(side, call, request).await;
        }
        let again = copy(&request);
        match self.call(Side::Upstream, call, request).await {
            Err(status) if status.code() == Code::NotFound && !self.upstream.takes("", false) => {
                self.call(Side::Ours, call, again).await
            }
            answer => answer,
        }
    }
}

/// Copies the request for the other side.
pub(super) fn copy(request: &Request<Bytes>) -> Request<Bytes> {
    let (metadata, extensions) = (request.metadata().clone(), request.extensions().clone());
    Request::from_parts(metadata, extensions, request.get_ref().clone())
}

impl Upstream {
    /// The side of the pod or the container with this id, or with the only id of this beginning. An unknown
    /// id is the upstream's, because its list may be slightly outdated.
    ///
    /// # Errors
    /// The id is the beginning of several, or is unknown while the upstream is down and may have it. A
    /// success would then report a running pod as stopped.
    pub(super) fn side_of(&self, listed: Listed, id: &str) -> Result<Side, Status> {
        Ok(self.known_side_of(listed, id)?.unwrap_or(Side::Upstream))
    }

    /// The side as above. `None` for an unknown id while the upstream is up and may have it.
    fn known_side_of(&self, listed: Listed, id: &str) -> Result<Option<Side>, Status> {
        let ours = self.local.id(listed, id);
        if ours.as_deref() == Some(id) || id.is_empty() {
            return Ok(Some(Side::Ours));
        }
        let theirs = self.known.ids(listed, id);
        match (ours, theirs.is_empty()) {
            (Some(ours), false) => Err(Status::invalid_argument(format!(
                "{id:?} is the beginning of several ids: {ours}, {}",
                theirs.join(", ")
            ))),
            (Some(_), true) => Ok(Some(Side::Ours)),
            (None, true) if self.link.is_up() => Ok(None),
            (None, true) => Err(self.link.unavailable()),
            (None, false) => Ok(Some(Side::Upstream)),
        }
    }
}
