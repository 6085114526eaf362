//! The ImageService's table: one line per RPC, through the gate to its file.

use proto_cri::v1::image_service_server::ImageService;
use proto_cri::v1::*;
use tonic::{Request, Response, Status};

use crate::gate::gate;
use crate::image;
use crate::serve::Cri;
use crate::stream::Streamed;

#[tonic::async_trait]
impl ImageService for Cri {
    type StreamImagesStream = Streamed<StreamImagesResponse>;

    async fn list_images(
        &self,
        r: Request<ListImagesRequest>,
    ) -> Result<Response<ListImagesResponse>, Status> {
        gate("ListImages", async { Ok(image::list::list(&self.images, r.into_inner())) }).await
    }

    async fn image_status(
        &self,
        r: Request<ImageStatusRequest>,
    ) -> Result<Response<ImageStatusResponse>, Status> {
        gate("ImageStatus", async { image::status::status(&self.images, r.into_inner()) }).await
    }

    async fn pull_image(&self, r: Request<PullImageRequest>) -> Result<Response<PullImageResponse>, Status> {
        gate("PullImage", image::pull::pull(&self.images, r.into_inner())).await
    }

    async fn remove_image(
        &self,
        r: Request<RemoveImageRequest>,
    ) -> Result<Response<RemoveImageResponse>, Status> {
        gate("RemoveImage", image::remove::remove(&self.images, r.into_inner())).await
    }

    async fn image_fs_info(
        &self,
        _: Request<ImageFsInfoRequest>,
    ) -> Result<Response<ImageFsInfoResponse>, Status> {
        gate("ImageFsInfo", image::fs_info::fs_info(self)).await
    }

    async fn stream_images(
        &self,
        r: Request<StreamImagesRequest>,
    ) -> Result<Response<Self::StreamImagesStream>, Status> {
        gate("StreamImages", image::stream::stream(self, r.into_inner())).await
    }
}
