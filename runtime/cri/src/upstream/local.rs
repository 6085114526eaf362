//! The pods, containers and images of this daemon, for routing calls. All answers come from memory.

use std::fmt::Debug;

use proto_cri::v1;
use runtime_image::Images;
use runtime_pod::Pods;

use super::route::Listed;
use crate::image::image_item;

/// The pods, containers and images of this daemon.
pub(super) trait Local: Debug + Send + Sync {
    /// The whole id of the pod or container with this id, or of the only one with this beginning.
    fn id(&self, listed: Listed, id: &str) -> Option<String>;

    /// Returns true if the pod is ours.
    fn has_pod(&self, pod: &v1::PodSandboxMetadata) -> bool;

    /// The image of this name in our store.
    fn image(&self, name: &str) -> Option<v1::Image>;
}

impl Local for (Pods, Images) {
    fn id(&self, listed: Listed, id: &str) -> Option<String> {
        match listed {
            Listed::Containers => self.0.container(id).map(|container| container.id.clone()),
            _ => self.0.pod(id).map(|pod| pod.id.clone()),
        }
    }

    fn has_pod(&self, pod: &v1::PodSandboxMetadata) -> bool {
        self.0.pods().iter().any(|of| {
            let spec = &of.spec;
            (&spec.uid, &spec.namespace, &spec.name, spec.attempt)
                == (&pod.uid, &pod.namespace, &pod.name, pod.attempt)
        })
    }

    fn image(&self, name: &str) -> Option<v1::Image> {
        self.1.find(name).map(|image| image_item(&image))
    }
}
