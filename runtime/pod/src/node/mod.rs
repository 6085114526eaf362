//! State shared by the pods of this node: places (paths), backends, records, handlers, and the roster.

pub(crate) mod open;
mod places;
mod records;
mod writer;

use std::convert::Infallible;
use std::fs::File;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use runtime_spec::HandlerConfig;

pub(crate) use self::places::Places;
pub(crate) use self::records::Records;
use crate::backend::Backends;
use crate::blocking::{Pools, blocking, blocking_within};
use crate::config::StartConfig;
use crate::container::filters::Filters;
use crate::error::{PodError, PodErrorKind};
use crate::host::memory_events;
use crate::plugins::Plugins;
use crate::record::PodRecord;
use crate::root_image::RootImage;
use crate::roster::Roster;
use crate::spares::kept::Spares;
use crate::templates::kept::Templates;
use crate::unclaimed::ids::UnclaimedIds;

/// How long opening and copying the root image may take.
const ROOT_IMAGE_WITHIN: Duration = Duration::from_secs(60);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) places: Places,
    pub(crate) backends: Backends,
    pub(crate) start: StartRules,
    pub(crate) records: Records,
    pub(crate) pools: Pools,
    pub(crate) roster: Roster,
    pub(crate) templates: Templates,
    pub(crate) unclaimed: UnclaimedIds,
    pub(crate) spares: Spares,
    pub(crate) root_image: Arc<RootImage>,
    pub(crate) filters: Filters,
    pub(crate) plugins: Arc<dyn Plugins>,
}

impl Node {
    /// The guests' root image, for one VM.
    pub(crate) async fn root_image(&self, doing: &str) -> Result<File, PodError> {
        let (image, installed) = (Arc::clone(&self.root_image), self.places.root_image.clone());
        let opening = move || image.open(&installed);
        blocking_within(ROOT_IMAGE_WITHIN, &self.pools.installation, doing, opening).await
    }

    /// Says how the node's kernel killed the pod's VMM for lack of memory, if it did.
    pub(crate) async fn oom_kill(&self, record: &Arc<PodRecord>) -> Option<String> {
        let (root, record) = (self.places.cgroup_root.clone(), record.clone());
        let reading = move || {
            let (parent, before) = (&record.spec.cgroup_parent, &record.memory_events_before);
            Ok::<_, Infallible>(memory_events::oom_kill(&root, parent, &record.id, before))
        };
        blocking(&self.pools.kernel, "reading how a VMM ended", reading).await.ok().flatten()
    }
}

/// The rules for new pods. They may change while pods are served. A pod's size follows the rules at the
/// moment of its request.
#[derive(Debug)]
pub(crate) struct StartRules(RwLock<Arc<StartConfig>>);

impl StartRules {
    pub(crate) fn new(config: StartConfig) -> StartRules {
        StartRules(RwLock::new(Arc::new(config)))
    }

    /// The rules of this moment.
    pub(crate) fn now(&self) -> Arc<StartConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set(&self, config: StartConfig) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }
}

impl StartConfig {
    /// Refuses any pod where a wall around its VMM is missing that it is not to be started without.
    pub(crate) fn check_walls(&self) -> Result<(), PodError> {
        if self.walls_missing.is_empty() {
            return Ok(());
        }
        let missing = self.walls_missing.join("; ");
        let text = format!("the node lacks walls around VMMs, which isolation.walls asks for: {missing}");
        Err(PodError::new(PodErrorKind::FailedPrecondition, text))
    }

    /// Name of the handler of this pod. One without a handler any more keeps its own name.
    pub(crate) fn name_of(&self, record: &PodRecord) -> String {
        self.find(record.handler()).map_or(record.handler(), |handler| &handler.name).to_owned()
    }

    /// The handler of this name; the default one for the empty name.
    pub(crate) fn find(&self, name: &str) -> Result<&HandlerConfig, PodError> {
        let sought = if name.is_empty() { self.default_handler.as_deref().unwrap_or_default() } else { name };
        self.handlers.iter().find(|handler| handler.name == sought).ok_or_else(|| {
            let known: Vec<_> = self.handlers.iter().map(|handler| handler.name.as_str()).collect();
            let text = format!("runtime_handler: no handler {name:?} here; there are: {}", known.join(", "));
            PodError::new(PodErrorKind::InvalidArgument, text)
        })
    }
}
