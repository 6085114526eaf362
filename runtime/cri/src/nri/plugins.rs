//! The handle to the node's plugins.

use std::sync::{Arc, OnceLock};

use runtime_cdi::Registry;
use runtime_nri::{NriConfig, ServeError};
use runtime_pod::Pods;

use super::unsupported::UnsupportedAdjustments;

/// The plugins of the node, for use by pods. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NriPlugins {
    pub(super) plugins: runtime_nri::Plugins,
    pub(super) cdi: Registry,
    pub(super) unsupported: UnsupportedAdjustments,
    pub(super) pods: Arc<OnceLock<Pods>>,
}

impl NriPlugins {
    /// Creates the handle without plugins. [`NriPlugins::serve`] adds them.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    #[must_use]
    pub fn new(config: NriConfig, unsupported: UnsupportedAdjustments) -> NriPlugins {
        let (plugins, cdi) = (runtime_nri::Plugins::new(config), Registry::default());
        NriPlugins { plugins, cdi, unsupported, pods: Arc::default() }
    }

    /// Starts plugins and lets others connect, with these pods. Returns when the started plugins know the
    /// pods.
    ///
    /// # Errors
    /// The plugin directories cannot be read, or the socket cannot be listened on.
    pub async fn serve(&self, pods: Pods) -> Result<(), ServeError> {
        // A second call is the caller's bug, and changes nothing.
        let _ = self.pods.set(pods);
        self.plugins.serve(Arc::new(self.clone())).await
    }

    /// Closes all plugins.
    pub async fn close(&self) {
        self.plugins.close().await;
    }
}
