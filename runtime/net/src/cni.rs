//! Sets up and tears down pods' networks. Owns the order of the steps and how to undo them. Each step is its
//! own module.
//!
//! ```text
//!   setup:     namespace ──► cache (no result) ──► ADD ──► cache (result) ──► taps
//!                   └────────────── any failure ──────────────┴──► teardown
//!   teardown:  DEL, by the cache ──► cache removed ──► namespace removed
//! ```
//!
//! Teardown stops at the first failing step and can be called again: a completed step does nothing the second
//! time.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use runtime_blocking::Pool;
use runtime_spans::{span, step};
use tokio::sync::OnceCell;

use crate::asked::Asked;
use crate::{
    NetError, PodNetwork, PodNetworkSpec, SettingsPolicy, attach,
    cache::{Cache, Entry},
    chain::{Chain, INTERFACE, Plugins},
    config::{self, NetworkList},
    leftover, netns,
    plugin::BUSY_WAIT,
    settings::Watch,
    spares::{Spare, Spares},
    trace::{self, NetworkTrace},
};

/// The directory of `ip netns` and other runtimes for namespaces.
const NETNS_DIR: &str = "/run/netns";

/// Most threads blocked on CNI's files at once: configurations, plugin lookups, recorded ADDs.
const FILE_THREADS: usize = 16;

/// The beginning of a namespace's name, before the pod's id.
const NETNS_PREFIX: &str = "podvisor-";

/// Default time limit for one run of a plugin.
const PLUGIN_TIME_MAX: Duration = Duration::from_secs(60);

/// Most time for one plugin's STATUS. A kubelet asks every five seconds.
const STATUS_TIME_MAX: Duration = Duration::from_secs(5);

/// Most time for the STATUS of all plugins, including disk access to their files.
const STATUS_WITHIN: Duration = Duration::from_secs(15);

/// Most time for the GC of all plugins, because pods' networks wait for it.
const GC_TIME_MAX: Duration = Duration::from_secs(60);

/// Most wait of GC for pods whose networks change. Later ones wait behind it.
const GC_WAIT_MAX: Duration = Duration::from_secs(10);

/// The directories of CNI's files, and limits for the plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniConfig {
    /// Holds network configurations; the first valid one is used.
    pub conf_dir: PathBuf,
    /// Directories of plugin binaries, searched in this order.
    pub bin_dirs: Vec<PathBuf>,
    /// Holds `podvisor/`, the records of ADDs until their DEL.
    pub cache_dir: PathBuf,
    /// Holds the mounts of the pods' namespaces.
    pub netns_dir: PathBuf,
    /// Most time for one run of a plugin.
    pub plugin_time_max: Duration,
    /// Most descriptors for a plugin; `None` for this process's own limit.
    pub open_files_max: Option<u64>,
    /// Most namespaces created in advance for pods.
    pub spares_max: usize,
    /// The policy for settings left by plugins in a pod's namespace.
    pub settings: SettingsPolicy,
    /// Whether [`Cni::collect_garbage`] runs. Of several daemons with the same records only one may: each
    /// keeps ADDs and GC apart for itself alone.
    pub collects_garbage: bool,
}

impl Default for CniConfig {
    fn default() -> Self {
        Self {
            conf_dir: "/etc/cni/net.d".into(),
            bin_dirs: ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"].map(PathBuf::from).into(),
            cache_dir: "/var/lib/cni".into(),
            netns_dir: NETNS_DIR.into(),
            plugin_time_max: PLUGIN_TIME_MAX,
            open_files_max: None,
            spares_max: 0,
            settings: SettingsPolicy::default(),
            collects_garbage: true,
        }
    }
}

/// The pods' networks on one node. All state is in files and in the kernel. Clones share the configuration,
/// and it may change.
#[derive(Clone, Debug)]
pub struct Cni {
    sources: Arc<RwLock<Arc<Sources>>>,
    cache: Cache,
    netns_dir: PathBuf,
    files: Pool,
    spares: Arc<Spares>,
    /// A reader is a pod's setup or teardown. The writer is the plugins' GC. The specification forbids
    /// running both at once.
    exclusive: Arc<tokio::sync::RwLock<()>>,
    collects_garbage: bool,
    /// Set once no plugin of an earlier daemon's GC runs any more.
    earlier_ended: Arc<OnceCell<()>>,
    asked: Arc<Asked>,
    /// The errors of skipped configurations, as last logged.
    skipped: Arc<Mutex<Vec<String>>>,
}

/// The part of the configuration allowed to change while pods are served.
#[derive(Clone, Debug)]
struct Sources {
    conf_dir: PathBuf,
    plugins: Plugins,
    spares_max: usize,
    settings: SettingsPolicy,
}

impl Cni {
    /// Takes the configuration. Nothing is read yet: network configurations may appear later.
    #[must_use]
    pub fn new(config: CniConfig) -> Self {
        let plugins = Plugins {
            dirs: config.bin_dirs,
            time_max: config.plugin_time_max,
            open_files_max: config.open_files_max,
            busy_wait: BUSY_WAIT,
        };
        let CniConfig { conf_dir, spares_max, settings, collects_garbage, .. } = config;
        let sources = Sources { conf_dir, plugins, spares_max, settings };
        Self {
            sources: Arc::new(RwLock::new(Arc::new(sources))),
            cache: Cache::new(&config.cache_dir),
            netns_dir: config.netns_dir,
            files: Pool::new("the disk of CNI's files", FILE_THREADS),
            spares: Arc::default(),
            exclusive: Arc::default(),
            collects_garbage,
            earlier_ended: Arc::default(),
            asked: Arc::default(),
            skipped: Arc::default(),
        }
    }

    /// Applies the configuration's directories, settings policy and number of spare namespaces from now on.
    /// The other fields count only in [`Cni::new`]. A running setup continues with its old configuration.
    pub fn configure(&self, CniConfig { conf_dir, bin_dirs, spares_max, settings, .. }: CniConfig) {
        let mut sources = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        let plugins = Plugins { dirs: bin_dirs, ..sources.plugins.clone() };
        *sources = Arc::new(Sources { conf_dir, plugins, spares_max, settings });
    }

    fn sources(&self) -> Arc<Sources> {
        Arc::clone(&self.sources.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a copy frozen at the current configuration.
    fn as_of_now(&self) -> Cni {
        Cni { sources: Arc::new(RwLock::new(self.sources())), ..self.clone() }
    }

    /// Checks if a pod could be set up now: a configuration is valid and its plugins exist. No plugin is run.
    ///
    /// # Errors
    /// There is no configuration, the first one is invalid, or a plugin is missing.
    pub fn ready(&self) -> Result<(), NetError> {
        let sources = self.sources();
        sources.plugins.complete(&config::load(&sources.conf_dir)?.list)
    }

    /// Does the checks of [`ready`](Self::ready), then asks the plugins themselves if they support it
    /// (STATUS, CNI 1.1.0). The time is bounded. Concurrent callers share one answer.
    ///
    /// # Errors
    /// As for [`ready`](Self::ready), or the error of the first plugin unable to serve a pod.
    pub async fn status(&self) -> Result<(), Arc<NetError>> {
        let asking = self.asked.ask(|| self.ask_plugins());
        let silent = |_| Err(Arc::new(NetError::Silent(STATUS_WITHIN)));
        tokio::time::timeout(STATUS_WITHIN, asking).await.unwrap_or_else(silent)
    }

    async fn ask_plugins(&self) -> Result<(), NetError> {
        let began_with = self.as_of_now();
        let list = began_with.on_files(Cni::list).await?;
        let mut plugins = began_with.sources().plugins.clone();
        plugins.time_max = plugins.time_max.min(STATUS_TIME_MAX);
        list.status(&plugins).await
    }

    /// Runs GC (CNI 1.1.0): the plugins clean up after attachments removed without a DEL, such as their
    /// addresses. Attachments of this daemon and of other libcni users on the node stay. Failures are only
    /// logged, because nothing depends on this.
    pub async fn collect_garbage(&self) {
        if !self.collects_garbage {
            return;
        }
        if let Err(error) = self.as_of_now().collect().await {
            tracing::info!(error = error.chain(), "CNI plugins are not asked to clean up");
        }
    }

    /// Ends what is left of an earlier daemon's GC. It would free the addresses of pods started since. Beside
    /// another daemon it may be that one's.
    async fn end_earlier_gc(&self) {
        if !self.collects_garbage {
            return;
        }
        let ending = async || {
            let path = self.sources().plugins.path();
            if let Err(error) = self.on_files(move |_| leftover::end_gc(&path)).await {
                tracing::warn!(error = error.chain(), "CNI plugins of an earlier daemon may still clean up");
            }
        };
        self.earlier_ended.get_or_init(ending).await;
    }

    async fn collect(&self) -> Result<(), NetError> {
        self.end_earlier_gc().await;
        let list = self.on_files(Cni::list).await?;
        // Behind the lock every pod's start and stop waits, so it is not even asked for without need.
        if !list.collects() {
            return Ok(());
        }
        let waiting = tokio::time::timeout(GC_WAIT_MAX, self.exclusive.write());
        let Ok(_exclusive) = waiting.await else {
            tracing::warn!(
                "CNI plugins are not asked to clean up: the network of a pod changes for {GC_WAIT_MAX:?}"
            );
            return Ok(());
        };
        let name = list.name.clone();
        let valid = self.on_files(move |cni| cni.cache.attachments(INTERFACE, &name)).await?;
        let sources = self.sources();
        match tokio::time::timeout(GC_TIME_MAX, list.collect(&sources.plugins, &valid)).await {
            Ok(failures) => {
                for error in failures {
                    tracing::warn!(error = error.chain(), "a CNI plugin did not clean up");
                }
            }
            Err(_) => tracing::warn!("CNI plugins did not clean up within {GC_TIME_MAX:?}"),
        }
        Ok(())
    }

    /// Runs work on CNI's files outside the async threads, because the disk can block.
    async fn on_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Cni) -> Result<T, NetError> + Send + 'static,
    ) -> Result<T, NetError> {
        let cni = self.clone();
        self.files.run(move || work(&cni)).await?
    }

    /// The mount point of the pod's namespace.
    fn netns_path(&self, pod_id: &str) -> PathBuf {
        self.netns_dir.join(format!("{NETNS_PREFIX}{pod_id}"))
    }

    /// Finds the traces of pods' networks on this node, of any daemon: namespaces and recorded ADDs.
    pub fn traces(&self) -> Vec<NetworkTrace> {
        let mut traces = trace::find(&self.netns_dir, NETNS_PREFIX, &[""]);
        traces.extend(self.cache.traces(INTERFACE));
        traces
    }

    /// Creates a spare namespace if more are wanted, and removes surplus ones. Returns true if it created
    /// one.
    ///
    /// # Errors
    /// A namespace could not be created or read. Pods start without it.
    pub async fn make_spare(&self) -> Result<bool, NetError> {
        let most = self.sources().spares_max;
        self.spares.close_files();
        self.spares.truncate(most);
        if self.spares.count() >= most {
            return Ok(false);
        }
        self.spares.keep(Spare::make(&self.netns_dir).await?);
        Ok(true)
    }

    /// Removes all spare namespaces.
    pub fn end_spares(&self) {
        self.spares.truncate(0);
    }

    /// Number of spare namespaces.
    pub fn spares(&self) -> usize {
        self.spares.count()
    }

    /// Creates the pod's namespace or takes a spare one, runs the plugins in it and joins their interfaces to
    /// taps.
    ///
    /// # Errors
    /// The failure of a step. The earlier steps were then undone. If undoing failed too, the error is
    /// [`NetError::Undo`], and [`Cni::teardown`] must be called again.
    pub async fn setup(&self, spec: &PodNetworkSpec) -> Result<PodNetwork, NetError> {
        spec.check()?;
        self.end_earlier_gc().await;
        let _shared = self.exclusive.read().await;
        let began_with = self.as_of_now();
        let list = step(span!("read the CNI configuration"), began_with.on_files(Cni::list)).await?;
        let path = self.netns_path(&spec.pod_id);
        let watch = step(span!("make the namespace"), self.namespace(&path)).await?;
        let entry = Entry::begun(list, spec.clone());
        match began_with.connect(entry, &path, watch).await {
            Ok(network) => Ok(network),
            Err(cause) => Err(match self.take_down(spec).await {
                Ok(()) => cause,
                Err(undo) => NetError::Undo { cause: Box::new(cause), undo: undo.chain() },
            }),
        }
    }

    /// Gives the name to a spare namespace, or to a new one. Returns a watch if the namespace was already
    /// surveyed.
    async fn namespace(&self, path: &Path) -> Result<Option<Watch>, NetError> {
        match self.spares.take() {
            Some(Spare { netns, fresh, files, .. }) => {
                netns::name(netns, path).await?;
                Ok(Some(Watch::of(path, fresh, files)))
            }
            None => netns::create(path).await.map(|()| None),
        }
    }

    /// Loads the network for a new pod and checks for all its plugins.
    fn list(&self) -> Result<NetworkList, NetError> {
        let sources = self.sources();
        let loaded = config::load(&sources.conf_dir)?;
        let skipped: Vec<String> = loaded.skipped.iter().map(NetError::chain).collect();
        let mut known = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        // A kubelet asks every few seconds.
        for error in skipped.iter().filter(|error| !known.contains(error)) {
            tracing::warn!(error, "a CNI configuration is skipped");
        }
        *known = skipped;
        drop(known);
        sources.plugins.complete(&loaded.list)?;
        Ok(loaded.list)
    }

    /// Records the entry.
    async fn remember(&self, entry: &Entry) -> Result<(), NetError> {
        let entry = entry.clone();
        step(span!("remember the ADD"), self.on_files(move |cni| cni.cache.write(INTERFACE, &entry))).await
    }

    /// Runs the steps of setup inside the namespace. `watch` is set if the namespace was already surveyed.
    async fn connect(
        &self,
        mut entry: Entry,
        path: &Path,
        watch: Option<Watch>,
    ) -> Result<PodNetwork, NetError> {
        self.remember(&entry).await?;
        let sources = self.sources();
        let mut watch = match watch {
            Some(watch) => watch,
            None => Watch::begin(path).await,
        };
        let chain = chain(&sources.plugins, &entry, path.into());
        let (result, reported) = chain.add(Some(&mut watch)).await?;
        entry.result = result;
        self.remember(&entry).await?;
        entry.list.require_address(&reported)?;
        self.spares.put_away(watch.take_files());
        let settings = sources.settings.decide(watch.end(sources.settings.replays()).await)?;
        let attaching = netns::within(path, |handle| attach::attach(handle, INTERFACE, reported.interfaces));
        let attached = step(span!("make the taps"), attaching).await?;
        // Hardly a pod has such a link, so hardly a start has this write.
        if !attached.all_groups.is_empty() {
            entry.all_groups = attached.all_groups;
            self.remember(&entry).await?;
        }
        Ok(PodNetwork {
            netns: path.to_owned(),
            interfaces: attached.interfaces,
            routes: attached.routes,
            neighbours: attached.neighbours,
            ips: reported.ips,
            settings,
        })
    }

    /// Runs DEL and removes the namespace. The call is idempotent: absent parts are no error. If the ADD is
    /// recorded, only `spec.pod_id` matters. Otherwise the rest of `spec` and the current configuration are
    /// used.
    ///
    /// # Errors
    /// The failure of a step. The namespace and the recorded ADD then stay for another try.
    pub async fn teardown(&self, spec: &PodNetworkSpec) -> Result<(), NetError> {
        spec.check()?;
        let _shared = self.exclusive.read().await;
        self.take_down(spec).await
    }

    async fn take_down(&self, spec: &PodNetworkSpec) -> Result<(), NetError> {
        let (id, path) = (spec.pod_id.clone(), self.netns_path(&spec.pod_id));
        let netns: OsString = if netns::exists(&path) { (&path).into() } else { OsString::new() };
        let (owned, has_netns) = (spec.clone(), !netns.is_empty());
        let entry = self.on_files(move |cni| cni.recorded_add(&owned, has_netns)).await?;
        let all_groups = entry.as_ref().map(|entry| entry.all_groups.clone()).unwrap_or_default();
        let detaching = |handle| attach::detach(handle, all_groups);
        if has_netns && let Err(error) = netns::within(&path, detaching).await {
            // Without it everything works; a link of the node may get more frames than before.
            tracing::debug!(pod = spec.pod_id, error = error.chain(), "the pod's links are not as before");
        }
        if let Some(entry) = entry {
            // A plugin may still be running if its ADD has not ended with a result.
            if entry.result.is_null() {
                let path = path.clone();
                let ending = self.on_files(move |_| leftover::end_add(&path));
                step(span!("end the interrupted ADD"), ending).await?;
            }
            let sources = self.sources();
            chain(&sources.plugins, &entry, netns).del(&entry.result).await?;
        }
        self.on_files(move |cni| cni.cache.remove(&id, INTERFACE)).await?;
        step(span!("remove the namespace"), netns::remove(&path)).await
    }

    /// Finds the ADD to undo. Without a readable record there is none, unless the pod has left a trace. The
    /// current configuration then replaces the record.
    fn recorded_add(&self, spec: &PodNetworkSpec, has_netns: bool) -> Result<Option<Entry>, NetError> {
        if let Some(entry) = self.cache.read(&spec.pod_id, INTERFACE)? {
            return Ok(Some(entry));
        }
        if !has_netns && !self.cache.has(&spec.pod_id, INTERFACE) {
            return Ok(None);
        }
        let list = match config::load(&self.sources().conf_dir) {
            Ok(loaded) => loaded.list,
            Err(error) => {
                let error = error.chain();
                tracing::warn!(
                    pod = spec.pod_id,
                    error,
                    "no CNI configuration to tear the pod's network down by"
                );
                return Ok(None);
            }
        };
        Ok(Some(Entry::begun(list, spec.clone())))
    }
}

fn chain<'a>(plugins: &'a Plugins, entry: &'a Entry, netns: OsString) -> Chain<'a> {
    Chain { plugins, list: &entry.list, spec: &entry.spec, netns }
}

#[cfg(test)]
mod tests;
