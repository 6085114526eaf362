//! All that the pods of this node share: places (paths), backends, records, handlers, and the roster.

pub(crate) mod open;
mod places;
mod records;

use std::convert::Infallible;
use std::sync::Arc;

use runtime_spec::HandlerConfig;

pub(crate) use self::places::Places;
pub(crate) use self::records::Records;
use crate::backend::Backends;
use crate::blocking::{Pools, blocking};
use crate::error::{PodError, PodErrorKind};
use crate::host::memory_events;
use crate::record::PodRecord;
use crate::roster::Roster;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) places: Places,
    pub(crate) backends: Backends,
    pub(crate) handlers: Handlers,
    /// See [`crate::PodsConfig`].
    pub(crate) strict_cgroups: bool,
    pub(crate) records: Records,
    pub(crate) pools: Pools,
    pub(crate) roster: Roster,
}

impl Node {
    /// Says how the node's kernel killed the pod's VMM for want of memory, if it did.
    pub(crate) async fn oom_kill(&self, record: &Arc<PodRecord>) -> Option<String> {
        let (root, record) = (self.places.cgroup_root.clone(), record.clone());
        let reading = move || {
            Ok::<_, Infallible>(memory_events::oom_kill(&root, &record.spec.cgroup_parent, &record.id))
        };
        blocking(&self.pools.kernel, "reading how a VMM ended", reading).await.ok().flatten()
    }
}

/// The handlers that pods may name.
#[derive(Debug)]
pub(crate) struct Handlers {
    pub(crate) all: Vec<HandlerConfig>,
    /// Serves pods that name none.
    pub(crate) default: Option<String>,
}

impl Handlers {
    /// The handler of this name; the default one for the empty name.
    pub(crate) fn find(&self, name: &str) -> Result<&HandlerConfig, PodError> {
        let sought = if name.is_empty() { self.default.as_deref().unwrap_or_default() } else { name };
        self.all.iter().find(|handler| handler.name == sought).ok_or_else(|| {
            let known: Vec<_> = self.all.iter().map(|handler| handler.name.as_str()).collect();
            let text = format!("runtime_handler: no handler {name:?} here; there are: {}", known.join(", "));
            PodError::new(PodErrorKind::InvalidArgument, text)
        })
    }
}
