//! RemoveImage: from both stores.

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;
use tonic::{Request, Response, Status};

use super::super::link::unary;
use super::super::route::{Call, Listed, Side};
use super::super::sides::Sides;
use super::decode;
use crate::convert::image_item_matches;

impl Sides {
    /// # Errors
    /// Also if the upstream is down and had the image, because it is still there.
    pub(in super::super) async fn remove_image(
        &self,
        call: &Call,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        let asked: v1::RemoveImageRequest = decode(request.get_ref())?;
        let name = asked.image.unwrap_or_default().image;
        let message = request.get_ref().clone();
        let ours = unary(self.ours.clone(), &call.path, request).await?;
        if self.upstream.link.is_up() {
            return self.call(Side::Upstream, call, Request::new(message)).await;
        }
        let had =
            v1::ListImagesResponse::decode(self.upstream.known.list(Listed::Images)).unwrap_or_default();
        if had.images.iter().any(|image| image_item_matches(&name, image)) {
            Err(self.upstream.link.unavailable())
        } else {
            Ok(ours)
        }
    }
}
