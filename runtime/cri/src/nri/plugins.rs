//! The handle to the node's plugins.

use std::sync::{Arc, OnceLock};

use runtime_cdi::Registry;
use runtime_nri::{NriConfig, ServeError};
use runtime_pod::Pods;

use super::unsupported::UnsupportedAdjustments;

/// The plugins of the node, as pods know them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NriPlugins {
    pub(super) plugins: runtime_nri::Plugins,
    pub(super) cdi: Registry,
    pub(super) unsupported: UnsupportedAdjustments,
    pub(super) pods: Arc<OnceLock<Pods>>,
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
