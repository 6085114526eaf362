//! ImageStatus: an image counts as present if any store has it, except once after a side could not bring it.

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;
use tonic::{Request, Response, Status};

use super::super::link::unary;
use super::super::route::{Call, Side, v1_path};
use super::super::sides::Sides;
use super::decode;

impl Sides {
    pub(in super::super) async fn image_status(
        &self,
        call: &Call,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        let asked: v1::ImageStatusRequest = decode(request.get_ref())?;
        let name = asked.image.unwrap_or_default().image;
        if self.upstream.absent.take(&name) {
            return Ok(Response::new(v1::ImageStatusResponse::default().encode_to_vec().into()));
        }
        let message = request.get_ref().clone();
        let ours = unary(self.ours.clone(), &call.path, request).await?;
        if decode::<v1::ImageStatusResponse>(ours.get_ref())?.image.is_some() || !self.upstream.link.is_up() {
            return Ok(ours);
        }
        self.call(Side::Upstream, call, Request::new(message)).await
    }

    /// The image of this name in the side's store.
    pub(super) async fn image(&self, side: Side, name: &str) -> Result<Option<v1::Image>, Status> {
        if side == Side::Ours {
            return Ok(self.upstream.local.image(name));
        }
        let spec = v1::ImageSpec { image: name.to_owned(), ..Default::default() };
        let request = v1::ImageStatusRequest { image: Some(spec), verbose: false }.encode_to_vec();
        let call = v1_path("ImageService", "ImageStatus");
        let answer = self.upstream.link.call(&call, Request::new(request.into())).await?;
        Ok(decode::<v1::ImageStatusResponse>(answer.get_ref())?.image)
    }
}
