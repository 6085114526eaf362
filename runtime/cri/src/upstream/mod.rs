//! The upstream: another runtime of the node, behind this one. Pods of its handlers are forwarded there
//! whole, and so is every later call about them. Messages are forwarded as their original bytes. Lists have
//! both sides' items.
//!
//! ```text
//!   client ──► layer.rs ──┬─ ours alone (Version) ─────────────────────────► our services
//!              (the path) ├─ by handler, or by id (sides.rs) ──┬─ ours ───► our services
//!                         │                                    └─ other ──► link.rs ──► upstream's socket
//!                         └─ both: lists.rs, events.rs, status.rs, images.rs, cgroup_driver.rs
//! ```
//!
//! | what | where |
//! |---|---|
//! | the table of RPCs | `route.rs` |
//! | the side of a pod or a container | `sides.rs`; our own: `local.rs` |
//! | the upstream's health | `link.rs`; its periodic check: `watch.rs` |
//! | its last lists, for use while it is down | `known.rs`; additions from answers and events: `noted.rs` |
//! | metrics of both sides | `metrics.rs` |
//! | the check for one file system, and for one cgroup driver | `file_system.rs`, `cgroup_driver.rs` |
//! | fields of undecoded messages | `fields.rs`, `raw.rs` |
//!
//! The upstream is part of the node and trusted as such, but its answers are still checked for validity. This
//! module never starts, stops or configures the upstream.

mod cgroup_driver;
mod error;
mod events;
mod fields;
mod file_system;
mod images;
mod known;
mod layer;
mod link;
mod lists;
mod local;
mod metrics;
mod noted;
mod raw;
mod route;
mod run;
mod sides;
mod status;
#[cfg(test)]
mod tests;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use runtime_image::Images;
use runtime_pod::Pods;
use tonic::{Code, Request};

use self::cgroup_driver::NodesDriver;
pub use self::error::UpstreamError;
use self::images::Absent;
use self::known::Known;
pub(crate) use self::layer::WithUpstream;
use self::link::Link;
use self::local::Local;
use self::route::v1_path;
use crate::runtime::status::CgroupDriver;

/// The configuration of another runtime, and its handlers.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// Path of the upstream's CRI socket.
    pub socket: PathBuf,
    /// Handlers leading there, by their names in both runtimes.
    pub handlers: Vec<String>,
    /// Pods forwarded there without naming a handler.
    pub unnamed_pods: UnnamedPods,
    /// Directory of our images, and of the remembered lists of the upstream.
    pub state_dir: PathBuf,
    /// The cgroup driver of the node, if the operator has decided.
    pub cgroup_driver: Option<CgroupDriver>,
}

impl UpstreamConfig {
    /// Checks that the upstream is usable. One that does not answer yet counts as usable.
    ///
    /// # Errors
    /// As [`UpstreamConfig::check_images`], or the upstream has another cgroup driver or no CRI.
    pub async fn check(&self) -> Result<(), UpstreamError> {
        let version = v1_path("RuntimeService", "Version");
        let version = Link::new(&self.socket).fetch(&version, Request::new(Bytes::new())).await;
        if version.is_err_and(|status| status.code() == Code::Unimplemented) {
            return Err(UpstreamError::NoCri { socket: self.socket.clone() });
        }
        self.check_images().await?;
        let driver = NodesDriver::new(self.cgroup_driver).compare(&Link::new(&self.socket)).await;
        let socket = self.socket.clone();
        driver.unwrap_or(Ok(())).map_err(|why| UpstreamError::CgroupDriver { socket, why })
    }

    /// Checks what no daemon can serve with. With another cgroup driver the upstream counts as down, and pods
    /// in VMs go on.
    ///
    /// # Errors
    /// The upstream's images are on another file system than ours.
    pub async fn check_images(&self) -> Result<(), UpstreamError> {
        let compared = file_system::compare(&Link::new(&self.socket), &self.state_dir).await;
        let socket = self.socket.clone();
        compared.unwrap_or(Ok(())).map_err(|why| UpstreamError::Images { socket, why })
    }
}

/// Pods without a handler forwarded to the upstream's default one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnnamedPods {
    /// None of them.
    None,
    /// Pods requesting a namespace of the node.
    #[default]
    OfTheNode,
    /// All of them.
    All,
}

/// The upstream, shared by all calls.
#[derive(Debug)]
pub(crate) struct Upstream {
    handlers: Vec<String>,
    unnamed_pods: UnnamedPods,
    state_dir: PathBuf,
    link: Link,
    known: Arc<Known>,
    absent: Absent,
    /// The last configuration sent by a kubelet.
    configuration: Mutex<Option<Bytes>>,
    driver: NodesDriver,
    local: Box<dyn Local>,
}

impl Upstream {
    /// Loads the remembered lists of the upstream. Blocks on the disk, and does not dial.
    pub(crate) fn new(config: UpstreamConfig, pods: Pods, images: Images) -> Upstream {
        Upstream::beside(Box::new((pods, images)), config)
    }

    /// Returns true if the upstream answers, as far as known.
    pub(crate) fn is_up(&self) -> bool {
        self.link.is_up()
    }

    fn beside(local: Box<dyn Local>, config: UpstreamConfig) -> Upstream {
        let UpstreamConfig { socket, handlers, unnamed_pods, state_dir, cgroup_driver } = config;
        let driver = NodesDriver::new(cgroup_driver);
        let (link, known) = (Link::new(&socket), Known::open(&state_dir.join("upstream")));
        let (absent, configuration) = Default::default();
        Upstream { handlers, unnamed_pods, state_dir, link, known, absent, configuration, driver, local }
    }
}
