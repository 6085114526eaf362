//! RemoveImage: all names of the image go; one that is not there is no error.

use proto_cri::v1;
use runtime_image::Images;

use super::image_name;
use crate::error::Failure;

pub(crate) fn remove(
    images: &Images,
    request: v1::RemoveImageRequest,
) -> Result<v1::RemoveImageResponse, Failure> {
    images.remove(&image_name(request.image)?)?;
    Ok(v1::RemoveImageResponse {})
}
