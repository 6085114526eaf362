//! ListImages: all of them, or the one named by the filter.

use proto_cri::v1;
use runtime_image::Images;

use super::image_item;

pub(crate) fn list(images: &Images, request: v1::ListImagesRequest) -> v1::ListImagesResponse {
    let wanted = request.filter.and_then(|filter| filter.image).map(|spec| spec.image).unwrap_or_default();
    let found = if wanted.is_empty() { images.list() } else { images.find(&wanted).into_iter().collect() };
    v1::ListImagesResponse { images: found.iter().map(image_item).collect() }
}
