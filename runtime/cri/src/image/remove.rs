//! RemoveImage: removes all names of the image. A missing image is no error.

use proto_cri::v1;
use runtime_image::Images;

use super::image_name;
use crate::blocking::STATE;
use crate::error::Failure;

pub(crate) async fn remove(
    images: &Images,
    request: v1::RemoveImageRequest,
) -> Result<v1::RemoveImageResponse, Failure> {
    let (images, name) = (images.clone(), image_name(request.image)?);
    STATE.run(move || images.remove(&name)).await??;
    Ok(v1::RemoveImageResponse {})
}
