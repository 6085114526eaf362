//! The upstream: another runtime of the node, behind this one. Pods of its handlers go there whole, and so does every later
//! call about them. Messages are handed on as the bytes they came in; lists have both sides' items.
//!
//! ```text
//!   client ──► layer.rs ──┬─ ours alone (Version, RuntimeConfig) ──────────► our services
//!              (the path) ├─ by handler, or by id (sides.rs) ──┬─ ours ───► our services
//!                         │                                    └─ other ──► link.rs ──► the upstream's socket
//!                         └─ both: lists.rs, events.rs, status.rs, images.rs
//! ```
//!
//! | what | where |
//! |---|---|
//! | the table of RPCs | `route.rs` |
//! | whose a pod or a container is | `sides.rs`; what is ours: `local.rs` |
//! | whether the upstream answers | `link.rs`; what asks it again and again: `watch.rs` |
//! | what it had last, for while it does not | `known.rs`; what answers and events add to that: `noted.rs` |
//! | metrics that both sides have | `metrics.rs` |
//! | whether both stores are on one file system | `file_system.rs` |
//! | fields of messages that nobody decodes | `fields.rs`, `raw.rs` |
//!
//! The upstream is part of the node and trusted as such; what it answers is checked for being an answer all the same. This
//! module never starts, stops or configures the upstream.

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

use self::images::Absent;
use self::known::Known;
pub(crate) use self::layer::WithUpstream;
use self::link::Link;
use self::local::Local;

/// The configuration of another runtime, and the handlers whose pods go there.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// Path of the upstream's CRI socket.
    pub socket: PathBuf,
    /// Handlers that lead there, by the names that both have for them.
    pub handlers: Vec<String>,
    /// Pods that go there without naming a handler.
    pub unnamed_pods: UnnamedPods,
    /// Directory of our images, and of what is remembered of the upstream's pods.
    pub state_dir: PathBuf,
}

impl UpstreamConfig {
    /// Looks whether the upstream can be used. An upstream that does not answer yet can be.
    ///
    /// # Errors
    /// The upstream's images are on another file system than ours; for people.
    pub async fn check(&self) -> Result<(), String> {
        let compared = file_system::compare(&Link::new(&self.socket), &self.state_dir).await;
        compared.unwrap_or(Ok(())).map_err(|why| format!("the runtime at {}: {why}", self.socket.display()))
    }
}

/// Pods that name no handler and go to the upstream's default one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnnamedPods {
    /// None of them.
    None,
    /// Pods that ask for a namespace of the node.
    #[default]
    OfTheNode,
    /// All of them.
    All,
}

/// The upstream as all calls share it.
#[derive(Debug)]
pub(crate) struct Upstream {
    handlers: Vec<String>,
    unnamed_pods: UnnamedPods,
    state_dir: PathBuf,
    link: Link,
    known: Arc<Known>,
    absent: Absent,
    /// The last configuration that a kubelet has sent.
    configuration: Mutex<Option<Bytes>>,
    local: Box<dyn Local>,
}

impl Upstream {
    /// Takes up what is known of the upstream. Blocks on the disk; dials nothing.
    pub(crate) fn new(config: UpstreamConfig, pods: Pods, images: Images) -> Upstream {
        Upstream::beside(Box::new((pods, images)), config)
    }

    /// Whether the upstream answers, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        self.link.is_up()
    }

    fn beside(local: Box<dyn Local>, config: UpstreamConfig) -> Upstream {
        let UpstreamConfig { socket, handlers, unnamed_pods, state_dir } = config;
        let (link, known) = (Link::new(&socket), Known::open(&state_dir.join("upstream")));
        let (absent, configuration) = Default::default();
        Upstream { handlers, unnamed_pods, state_dir, link, known, absent, configuration, local }
    }
}
