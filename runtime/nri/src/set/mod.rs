//! All plugins, in the order of their indexes, and the delivery of events to them.
//!
//! A joining plugin must learn of every container, either from the list of existing ones or from its
//! creation. So each operation in progress counts as a [`Flight`] with the plugins present at its beginning:
//!
//! ```text
//!   flight (old plugins) ├──── created ────┤
//!   join:      listed ───┤ waits ..........├─ takes what there is ── Synchronize ── events
//!   flight (with the new plugin)      ├─ CreateContainer waits in its queue ........├──
//! ```

mod flight;
mod plugins;

pub use flight::{Creation, Flight, Update};
pub use plugins::{Plugins, ServeError};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use proto_nri::nri::ContainerUpdate;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use crate::config::NriConfig;
use crate::join::{JoinError, Joined};
use crate::plugin::{self, Plugin, waiting_calls};
use crate::runtime::{Known, Runtime};

/// Most plugins, including those still registering: far more than nodes have.
const PLUGINS_MAX: usize = 64;

/// Most update lists waiting for the runtime, from plugins without a waiting caller.
const UPDATES_WAITING_MAX: usize = 64;

/// All plugins.
#[derive(Debug)]
struct Set {
    config: NriConfig,
    runtime: OnceLock<Arc<dyn Runtime>>,
    state: Mutex<State>,
    /// A flight has ended.
    landed: Notify,
    places: Arc<Semaphore>,
    updates: mpsc::Sender<Vec<ContainerUpdate>>,
    closing: watch::Sender<bool>,
}

/// The present plugins, and the operations in progress.
#[derive(Debug)]
struct State {
    /// Counts the changes of the list.
    generation: u64,
    plugins: Arc<[Arc<Plugin>]>,
    /// Number of flights by generation.
    flights: BTreeMap<u64, usize>,
}

/// A joined plugin on its way into the list.
struct Newcomer {
    joined: Joined,
    place: OwnedSemaphorePermit,
    /// Notified when the plugin has the existing pods and containers.
    ready: oneshot::Sender<()>,
}

impl Set {
    fn new(config: NriConfig) -> (Arc<Set>, mpsc::Receiver<Vec<ContainerUpdate>>) {
        let (updates, waiting) = mpsc::channel(UPDATES_WAITING_MAX);
        let state = State { generation: 0, plugins: Arc::new([]), flights: BTreeMap::new() };
        let set = Set {
            config,
            runtime: OnceLock::new(),
            state: Mutex::new(state),
            landed: Notify::new(),
            places: Arc::new(Semaphore::new(PLUGINS_MAX)),
            updates,
            closing: watch::Sender::new(false),
        };
        (Arc::new(set), waiting)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plugins(&self) -> Arc<[Arc<Plugin>]> {
        self.state().plugins.clone()
    }

    fn known(&self) -> Known {
        self.runtime.get().map(|runtime| runtime.known()).unwrap_or_default()
    }

    /// Puts a plugin into the list and returns the list's generation.
    fn list(&self, plugin: &Arc<Plugin>) -> u64 {
        let mut state = self.state();
        let mut plugins = state.plugins.to_vec();
        plugins.push(plugin.clone());
        plugins.sort_by(|one, other| one.name.cmp(&other.name));
        state.plugins = plugins.into();
        state.generation += 1;
        state.generation
    }

    fn unlist(&self, plugin: &Arc<Plugin>) {
        let mut state = self.state();
        let is_other = |known: &&Arc<Plugin>| !Arc::ptr_eq(known, plugin);
        state.plugins = state.plugins.iter().filter(is_other).cloned().collect();
        state.generation += 1;
    }

    /// Waits for the end of all flights begun before this generation.
    async fn landed_before(&self, generation: u64) {
        loop {
            let landed = self.landed.notified();
            if self.state().flights.range(..generation).next().is_none() {
                return;
            }
            landed.await;
        }
    }

    /// Queues updates. No caller waits for them.
    fn update_later(&self, updates: Vec<ContainerUpdate>) {
        if !updates.is_empty() && self.updates.try_send(updates).is_err() {
            tracing::warn!("too many updates of plugins are waiting; one list is dropped");
        }
    }

    /// Lists a plugin, and runs it in its own task.
    async fn admit(self: &Arc<Set>, newcomer: Newcomer) {
        let Newcomer { joined, place, ready } = newcomer;
        let timeout = self.config.request_timeout;
        let (plugin, mut queue) = Plugin::new(joined.name.clone(), joined.events, timeout);
        let generation = self.list(&plugin);
        let landing = self.landed_before(generation);
        if tokio::time::timeout(self.config.registration_timeout, landing).await.is_err() {
            tracing::warn!(plugin = %plugin.name, "a plugin joins before all pods and containers in creation are done; it may miss some");
        }
        let calls = waiting_calls(&mut queue);
        let known = self.known();
        let set = self.clone();
        tokio::spawn(async move {
            let mut closing = set.closing.subscribe();
            let driving = async {
                let updates = match joined.synchronize(&set.config, known).await {
                    Ok(updates) => updates,
                    Err(error) => return log_refusal(&plugin, &error),
                };
                tracing::info!(plugin = %plugin.name, "an NRI plugin has joined");
                set.update_later(updates);
                // The receiver may have given up.
                let _ = ready.send(());
                let broken =
                    plugin::run(&plugin, joined.client.clone(), (calls, queue), joined.ended()).await;
                tracing::warn!(plugin = %plugin.name, reason = %broken, "an NRI plugin is gone");
            };
            tokio::select! {
                () = driving => {}
                _ = closing.wait_for(|closing| *closing) => {}
            }
            set.unlist(&plugin);
            drop(joined);
            drop(place);
        });
    }
}

fn log_refusal(plugin: &Plugin, error: &JoinError) {
    tracing::error!(plugin = %plugin.name, %error, "an NRI plugin did not accept the existing pods and containers");
}
