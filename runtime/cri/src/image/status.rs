//! ImageStatus: a missing image is an empty answer, not an error.

use std::collections::BTreeMap;

use proto_cri::v1;
use runtime_image::Images;

use super::{image_item, image_name};
use crate::error::Failure;

pub(crate) fn status(
    images: &Images,
    request: v1::ImageStatusRequest,
) -> Result<v1::ImageStatusResponse, Failure> {
    let Some(image) = images.find(&image_name(request.image)?) else {
        return Ok(v1::ImageStatusResponse::default());
    };
    let info = if request.verbose {
        let config = serde_json::json!({ "id": image.id, "config": *image.config }).to_string();
        BTreeMap::from([("info".to_owned(), config)])
    } else {
        BTreeMap::new()
    };
    Ok(v1::ImageStatusResponse { image: Some(image_item(&image)), info })
}
