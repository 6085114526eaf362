//! CreateContainer. If another pod has brought the container's image only to the other store, it is first
//! pulled to the pod's side. So are images mounted by the container. This uses no credentials: those of the
//! earlier pull belong to the other pod.

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;
use tonic::{Code, Request, Response, Status};
use tracing::info;

use super::super::fields;
use super::super::route::{Call, Listed, Side, v1_path};
use super::super::sides::Sides;
use super::decode;

/// The kubelet's name for an unresponsive registry (cri-api, `errors.ErrRegistryUnavailable`).
const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";

impl Sides {
    pub(in super::super) async fn create(
        &self,
        call: &Call,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        let id = fields::text(request.get_ref(), 1).map_err(Status::invalid_argument)?;
        let side = self.upstream.side_of(Listed::Pods, id)?;
        let asked: v1::CreateContainerRequest = decode(request.get_ref())?;
        for image in asked.config.into_iter().flat_map(images) {
            self.bring(side, &image, asked.sandbox_config.clone()).await?;
        }
        self.call(side, call, request).await
    }

    /// Pulls the image to the side, unless it is there already, or on neither side.
    async fn bring(
        &self,
        side: Side,
        image: &v1::ImageSpec,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<(), Status> {
        if self.image(side, &image.image).await?.is_some() {
            return Ok(());
        }
        let there = self.image(side.other(), &image.image).await.ok().flatten();
        let Some(name) = there.as_ref().and_then(|there| pull_name(image, there)) else { return Ok(()) };
        info!(image = name, ?side, "an image is needed in the other store, too");
        let spec = v1::ImageSpec { image: name.clone(), ..image.clone() };
        let request = v1::PullImageRequest { image: Some(spec), auth: None, sandbox_config };
        let message = Bytes::from(request.encode_to_vec());
        let pulled = self.send(side, &v1_path("ImageService", "PullImage"), Request::new(message)).await;
        let Err(refused) = pulled else { return Ok(()) };
        if may_pass(&refused) {
            let why = format!(
                "image {name} is in the other runtime's store alone, and cannot be pulled now: {}",
                refused.message()
            );
            return Err(Status::unavailable(why));
        }
        let names = [&image.image, &image.user_specified_image].map(String::clone);
        let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
        self.upstream.absent.add(side, &names);
        Err(Status::not_found(format!(
            "image {name} is in the other runtime's store alone, and cannot be pulled without credentials: {}; the next \
             ImageStatus does not find it, so that it is pulled for this pod",
            refused.message()
        )))
    }
}

/// Returns true if a pull failed for a reason that credentials do not change.
fn may_pass(refused: &Status) -> bool {
    let passing =
        [Code::Unavailable, Code::DeadlineExceeded, Code::ResourceExhausted, Code::Cancelled, Code::Aborted];
    passing.contains(&refused.code()) || refused.message().contains(REGISTRY_UNAVAILABLE)
}

/// The images needed by a container: its own, and those mounted by it.
fn images(config: v1::ContainerConfig) -> impl Iterator<Item = v1::ImageSpec> {
    let mounted = config.mounts.into_iter().filter_map(|mount| mount.image);
    config.image.into_iter().chain(mounted).filter(|image| !image.image.is_empty())
}

/// A name for pulling the image. A kubelet asks by the image's id. The identical image is found by its digest
/// in a repository, otherwise by the name written by the pod's author. Other clients ask by a name, and a
/// store without that name could not find the image by another.
fn pull_name(image: &v1::ImageSpec, there: &v1::Image) -> Option<String> {
    if !is_id_of(&image.image, &there.id) {
        return Some(image.image.clone());
    }
    let names = there.repo_digests.iter().chain([&image.user_specified_image]).chain(&there.repo_tags);
    names.into_iter().find(|name| !name.is_empty()).cloned()
}

/// Returns true if this is an image's id, or the beginning of it, with or without its algorithm.
fn is_id_of(asked: &str, id: &str) -> bool {
    let bare = |id: &str| id.split_once(':').map_or(id, |(_, hex)| hex).to_owned();
    bare(id).starts_with(&bare(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_pulled_by_its_digest_where_it_has_one() {
        let spec = |user: &str| v1::ImageSpec {
            image: "sha256:aa".into(),
            user_specified_image: user.into(),
            ..Default::default()
        };
        let image = |digests: &[&str], tags: &[&str]| v1::Image {
            id: "sha256:aabb".into(),
            repo_digests: digests.iter().map(ToString::to_string).collect(),
            repo_tags: tags.iter().map(ToString::to_string).collect(),
            ..Default::default()
        };
        let name = |user, digests: &[&str], tags: &[&str]| pull_name(&spec(user), &image(digests, tags));
        assert_eq!(name("app:1", &["r/app@sha256:1"], &["r/app:1"]).unwrap(), "r/app@sha256:1");
        assert_eq!(name("app:1", &[], &["r/app:1"]).unwrap(), "app:1");
        assert_eq!(name("", &[], &["r/app:1"]).unwrap(), "r/app:1");
        assert_eq!(name("", &[], &[]), None);
    }

    #[test]
    fn an_image_that_is_asked_for_by_a_name_is_pulled_by_it() {
        let there = v1::Image {
            id: "sha256:aabb".into(),
            repo_tags: vec!["r/app:1".into()],
            repo_digests: vec!["r/app@sha256:1".into()],
            ..Default::default()
        };
        let name =
            |asked: &str| pull_name(&v1::ImageSpec { image: asked.into(), ..Default::default() }, &there);
        assert_eq!(name("r/app:1").unwrap(), "r/app:1");
        assert_eq!(name("app").unwrap(), "app");
        assert_eq!(name("aabb").unwrap(), "r/app@sha256:1");
    }
}
