//! PullImage: into the store of the requesting pod, with its credentials.

use bytes::Bytes;
use proto_cri::v1;
use tonic::{Request, Response, Status};

use super::super::route::{Call, Listed, Side};
use super::super::sides::Sides;
use super::super::{UnnamedPods, Upstream};
use super::decode;

impl Sides {
    pub(in super::super) async fn pull_image(
        &self,
        call: &Call,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        let asked: v1::PullImageRequest = decode(request.get_ref())?;
        let name = asked.image.unwrap_or_default().image;
        let pod = asked.sandbox_config.and_then(|config| config.metadata);
        let side = self.upstream.side_of_pod(pod.as_ref()).await;
        let answer = self.call(side, call, request).await?;
        let image = decode::<v1::PullImageResponse>(answer.get_ref())?.image_ref;
        self.upstream.absent.remove(side, &[name, image]);
        Ok(answer)
    }
}

impl Upstream {
    /// Records the arrival of the image of these names in this daemon's store.
    pub(crate) fn arrived(&self, names: &[String]) {
        self.absent.remove(Side::Ours, names);
    }

    /// The side of this pod. Without a pod, the side of pods without a handler.
    pub(super) async fn side_of_pod(&self, pod: Option<&v1::PodSandboxMetadata>) -> Side {
        let default = if self.unnamed_pods == UnnamedPods::All { Side::Upstream } else { Side::Ours };
        let Some(pod) = pod else { return default };
        if self.local.has_pod(pod) {
            return Side::Ours;
        }
        let is_known = || self.known.pods().iter().any(|of| of.metadata.as_ref() == Some(pod));
        if is_known() {
            return Side::Upstream;
        }
        // It may have been created since the last list.
        match self.refresh(Listed::Pods).await {
            Ok(()) if is_known() => Side::Upstream,
            // The same without its list: an unknown pod uses the default store.
            _ => default,
        }
    }
}
