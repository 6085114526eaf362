//! PullImage: into the store of the pod that needs the image, with that pod's credentials.

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
    /// Notes that the store of this daemon has got the image of these names.
    pub(crate) fn arrived(&self, names: &[String]) {
        self.absent.remove(Side::Ours, names);
    }

    /// The side that has this pod; without one, that of pods that name no handler.
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
        // Made since the last list, perhaps.
        match self.refresh(Listed::Pods).await {
            Ok(()) if is_known() => Side::Upstream,
            // Without its list, too: the store of a pod that nobody knows is the default one's.
            _ => default,
        }
    }
}
