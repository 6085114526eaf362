//! The ImageService's RPCs, one file each, and an image's form on the wire.

pub(crate) mod fs_info;
pub(crate) mod list;
pub(crate) mod pull;
pub(crate) mod remove;
pub(crate) mod status;
pub(crate) mod stream;

use proto_cri::v1;
use runtime_image::Image;

/// An image in CRI's form. `uid` is set for a numeric user, `username` for a named one: the kubelet's
/// runAsNonRoot check reads them (cri-api, `Image`).
pub(crate) fn image_item(image: &Image) -> v1::Image {
    let user = image.config.run.user.split(':').next().unwrap_or_default();
    let uid = user.parse::<u32>().ok().map(|uid| v1::Int64Value { value: uid.into() });
    v1::Image {
        id: image.id.clone(),
        repo_tags: image.repo_tags.clone(),
        repo_digests: image.repo_digests.clone(),
        size: image.size_bytes,
        username: if uid.is_some() { String::new() } else { user.to_owned() },
        uid,
        spec: Some(v1::ImageSpec { image: image.id.clone(), ..Default::default() }),
        pinned: image.pinned,
    }
}

/// The name in an image spec. Every image RPC needs one.
fn image_name(spec: Option<v1::ImageSpec>) -> Result<String, crate::error::Failure> {
    match spec {
        Some(spec) if !spec.image.is_empty() => {
            crate::subject::image(&spec.image);
            Ok(spec.image)
        }
        _ => Err(crate::error::Failure::invalid("image.image is empty")),
    }
}
