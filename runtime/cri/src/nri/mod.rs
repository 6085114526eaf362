//! Plugins of the node (NRI) and pods, each in the other's words. What a plugin is, `runtime/nri` knows; what becomes of a pod,
//! `runtime/pod`. What plugins ask for goes the way of a request: it is put into a container's spec, which is checked as a kubelet's.
//!
//! | file | has |
//! |---|---|
//! | `asking.rs` | the questions of pods, as NRI's events |
//! | `behind.rs` | what plugins ask of pods: what there is, and updates |
//! | `adjust.rs`, `device.rs` | an adjustment, put into a container's spec |
//! | `unsupported.rs` | what a container in a VM cannot have |
//! | `out.rs`, `resources.rs` | pods, containers and resources as NRI has them |

mod adjust;
mod asking;
mod behind;
mod device;
mod out;
mod resources;
mod unsupported;

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use proto_nri::nri::Event::{
    POST_CREATE_CONTAINER, POST_START_CONTAINER, REMOVE_CONTAINER, REMOVE_POD_SANDBOX, STOP_POD_SANDBOX,
};
use runtime_cdi::Registry;
use runtime_nri::{NriConfig, Occurrence, ServeError};
use runtime_pod::{ContainerView, EventKind, PodView, Pods};

use self::asking::Flight;
use self::out::{container_out, pod_out};
pub use self::unsupported::UnsupportedAdjustments;

/// The plugins of the node, as pods know them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NriPlugins {
    plugins: runtime_nri::Plugins,
    cdi: Registry,
    unsupported: UnsupportedAdjustments,
    pods: Arc<OnceLock<Pods>>,
}

impl NriPlugins {
    /// No plugins yet, and none before [`NriPlugins::serve`].
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    #[must_use]
    pub fn new(config: NriConfig, unsupported: UnsupportedAdjustments) -> NriPlugins {
        let (plugins, cdi) = (runtime_nri::Plugins::new(config), Registry::default());
        NriPlugins { plugins, cdi, unsupported, pods: Arc::default() }
    }

    /// Starts plugins and lets others connect, with these pods. Returns when those that were started know them.
    ///
    /// # Errors
    /// Plugins cannot be found, or not be listened for.
    pub async fn serve(&self, pods: Pods) -> Result<(), ServeError> {
        // A second time is a fault of the caller, and changes nothing.
        let _ = self.pods.set(pods);
        self.plugins.serve(Arc::new(self.clone())).await
    }

    /// Closes all plugins.
    pub async fn close(&self) {
        self.plugins.close().await;
    }
}

#[async_trait]
impl runtime_pod::Plugins for NriPlugins {
    fn hears(&self) -> bool {
        !self.plugins.is_alone()
    }

    fn begin(&self) -> Box<dyn runtime_pod::Asking> {
        Box::new(Flight::new(self))
    }

    fn notice(&self, kind: EventKind, pod: &PodView, container: Option<&ContainerView>) {
        let Some(container) = container else {
            // Of a pod's other events plugins hear while they happen.
            if kind == EventKind::Deleted {
                self.plugins.notice(Occurrence::of_pod(REMOVE_POD_SANDBOX, pod_out(pod)));
            }
            return;
        };
        let event = match kind {
            EventKind::Created => POST_CREATE_CONTAINER,
            EventKind::Started => POST_START_CONTAINER,
            EventKind::Deleted => REMOVE_CONTAINER,
            EventKind::Stopped => {
                return self.plugins.container_stopped(pod_out(pod), container_out(container));
            }
        };
        self.plugins.notice(Occurrence::of_container(event, pod_out(pod), container_out(container)));
    }

    async fn pod_stops(&self, pod: &PodView) {
        self.plugins.notice_first(Occurrence::of_pod(STOP_POD_SANDBOX, pod_out(pod))).await;
    }
}
