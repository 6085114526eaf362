//! Sets up and tears down pods' networks. Owns the order of the steps and how they are undone; each step is a
//! module of its own.
//!
//! ```text
//!   setup:     namespace ──► cache (no result) ──► ADD ──► cache (result) ──► taps
//!                   └────────────── any failure ──────────────┴──► teardown
//!   teardown:  DEL, by the cache ──► cache removed ──► namespace removed
//! ```
//!
//! Teardown stops at the first step that fails and can be called again: a step whose work is done does nothing.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use runtime_blocking::Pool;
use runtime_spans::{span, step};

use crate::asked::Asked;
use crate::{
    NetError, PodNetwork, PodNetworkSpec, SettingsPolicy, attach,
    cache::{Cache, Entry},
    chain::{Chain, INTERFACE, Plugins},
    config::{self, NetworkList},
    netns,
    plugin::BUSY_WAIT,
    settings::Watch,
    spares::{Spare, Spares},
    trace::{self, NetworkTrace},
};

/// Where `ip netns` and other runtimes keep namespaces.
const NETNS_DIR: &str = "/run/netns";

/// Threads that may wait for CNI's files: configurations, plugins to be looked up, remembered ADDs.
const FILE_THREADS: usize = 16;

/// The beginning of a namespace's name, before the pod's id.
const NETNS_PREFIX: &str = "podvisor-";

/// Most time for one run of a plugin, unless configured.
const PLUGIN_TIME_MAX: Duration = Duration::from_secs(60);

/// Most time for one plugin to say whether it could serve a pod. A kubelet asks every five seconds.
const STATUS_TIME_MAX: Duration = Duration::from_secs(5);

/// Most time for all of them, and for the disk of their files.
const STATUS_WITHIN: Duration = Duration::from_secs(15);

/// Most time for all plugins to clean up: pods' networks wait for that.
const GC_TIME_MAX: Duration = Duration::from_secs(60);

/// The directories of CNI's files, and the plugins' bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniConfig {
    /// Holds network configurations; the first valid one is used.
    pub conf_dir: PathBuf,
    /// Directories of plugin binaries, searched in this order.
    pub bin_dirs: Vec<PathBuf>,
    /// Holds `podvisor/`, where ADDs are remembered until their DEL.
    pub cache_dir: PathBuf,
    /// Holds the mounts of the pods' namespaces.
    pub netns_dir: PathBuf,
    /// Most time for one run of a plugin.
    pub plugin_time_max: Duration,
    /// Most descriptors that a plugin may open; `None` for as many as this process.
    pub open_files_max: Option<u64>,
    /// Namespaces that may wait for pods at most.
    pub spares_max: usize,
    /// The fate of settings that plugins leave in a pod's namespace.
    pub settings: SettingsPolicy,
}

impl Default for CniConfig {
    fn default() -> Self {
        Self {
            conf_dir: "/etc/cni/net.d".into(),
            bin_dirs: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            cache_dir: "/var/lib/cni".into(),
            netns_dir: NETNS_DIR.into(),
            plugin_time_max: PLUGIN_TIME_MAX,
            open_files_max: None,
            spares_max: 0,
            settings: SettingsPolicy::default(),
        }
    }
}

/// The pods' networks on one node. All state is in files and in the kernel.
/// Clones share the configuration, which may change.
#[derive(Clone, Debug)]
pub struct Cni {
    sources: Arc<RwLock<Arc<Sources>>>,
    cache: Cache,
    netns_dir: PathBuf,
    files: Pool,
    spares: Arc<Spares>,
    /// Held for reading while a pod's network is set up or taken down, and for writing while plugins clean up: the specification allows
    /// only one of the two at a time.
    exclusive: Arc<tokio::sync::RwLock<()>>,
    asked: Arc<Asked>,
}

/// The part of the configuration that may change while pods are served.
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
        let CniConfig { conf_dir, spares_max, settings, .. } = config;
        let sources = Sources { conf_dir, plugins, spares_max, settings };
        Self {
            sources: Arc::new(RwLock::new(Arc::new(sources))),
            cache: Cache::new(&config.cache_dir),
            netns_dir: config.netns_dir,
            files: Pool::new("the disk of CNI's files", FILE_THREADS),
            spares: Arc::default(),
            exclusive: Arc::default(),
            asked: Arc::default(),
        }
    }

    /// Takes configurations and plugins from the directories of this configuration from now on, settings by its policy, and as many
    /// namespaces that wait; its other fields count when a [`Cni`] is made. A setup that runs goes on with those that it began with.
    pub fn configure(&self, CniConfig { conf_dir, bin_dirs, spares_max, settings, .. }: CniConfig) {
        let mut sources = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        let plugins = Plugins { dirs: bin_dirs, ..sources.plugins.clone() };
        *sources = Arc::new(Sources { conf_dir, plugins, spares_max, settings });
    }

    fn sources(&self) -> Arc<Sources> {
        Arc::clone(&self.sources.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// These networks with the configuration of this moment, which stays.
    fn as_of_now(&self) -> Cni {
        Cni { sources: Arc::new(RwLock::new(self.sources())), ..self.clone() }
    }

    /// Checks that a pod could be set up now, from the directories as they are: a configuration is valid and
    /// its plugins exist. No plugin is run.
    ///
    /// # Errors
    /// No configuration or plugin is there, or the first configuration is invalid.
    pub fn ready(&self) -> Result<(), NetError> {
        let sources = self.sources();
        sources.plugins.complete(&config::load(&sources.conf_dir)?.list)
    }

    /// Checks what [`ready`](Self::ready) does, and then asks the plugins themselves, where they know how to answer (STATUS, CNI 1.1.0).
    /// Bounded in time; callers that come together get one answer.
    ///
    /// # Errors
    /// As of [`ready`](Self::ready), or the first plugin's that could not serve a pod.
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

    /// Has the plugins clean up what attachments have left that are gone without a DEL, such as addresses (GC, CNI 1.1.0). Attachments of
    /// this daemon and of others on the node that use libcni stay. Failures are logged: nothing depends on this.
    pub async fn collect_garbage(&self) {
        let began_with = self.as_of_now();
        let _exclusive = self.exclusive.write().await;
        let found = began_with.on_files(|cni| {
            let list = cni.list()?;
            let valid = cni.cache.attachments(INTERFACE, &list.name)?;
            Ok((list, valid))
        });
        match found.await {
            Ok((list, valid)) => {
                let sources = began_with.sources();
                let cleaning = list.collect(&sources.plugins, &valid);
                match tokio::time::timeout(GC_TIME_MAX, cleaning).await {
                    Ok(failures) => {
                        for error in failures {
                            tracing::warn!(error = error.chain(), "a CNI plugin did not clean up");
                        }
                    }
                    Err(_) => tracing::warn!("CNI plugins did not clean up within {GC_TIME_MAX:?}"),
                }
            }
            Err(error) => {
                tracing::info!(error = error.chain(), "CNI plugins are not asked to clean up");
            }
        }
    }

    /// Runs work on CNI's files beside the async threads: they are on a disk.
    async fn on_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Cni) -> Result<T, NetError> + Send + 'static,
    ) -> Result<T, NetError> {
        let cni = self.clone();
        self.files.run(move || work(&cni)).await?
    }

    /// The path at which the pod's namespace is mounted.
    fn netns_path(&self, pod_id: &str) -> PathBuf {
        self.netns_dir.join(format!("{NETNS_PREFIX}{pod_id}"))
    }

    /// Finds the traces of pods' networks on this node, of whichever daemon: namespaces, and ADDs that are remembered.
    pub fn traces(&self) -> Vec<NetworkTrace> {
        let mut traces = trace::find(&self.netns_dir, NETNS_PREFIX, &[""]);
        traces.extend(self.cache.traces(INTERFACE));
        traces
    }

    /// Makes a namespace that waits for a pod, where more are wanted, and ends those that are too many. Whether one was made.
    ///
    /// # Errors
    /// A namespace could not be made or read. Pods go without.
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

    /// Ends all namespaces that wait for pods.
    pub fn end_spares(&self) {
        self.spares.truncate(0);
    }

    /// How many namespaces wait for pods.
    pub fn spares(&self) -> usize {
        self.spares.count()
    }

    /// Makes the pod's namespace, or takes one that waits, runs the plugins in it and joins their interfaces to taps.
    ///
    /// # Errors
    /// The failure of a step. The steps before it were then undone, or [`NetError::Undo`] says that this failed
    /// too, and [`Cni::teardown`] must be called again.
    pub async fn setup(&self, spec: &PodNetworkSpec) -> Result<PodNetwork, NetError> {
        spec.check()?;
        let _shared = self.exclusive.read().await;
        let began_with = self.as_of_now();
        let list = step(span!("read the CNI configuration"), began_with.on_files(Cni::list)).await?;
        let path = self.netns_path(&spec.pod_id);
        let watch = step(span!("make the namespace"), self.namespace(&path)).await?;
        let entry = Entry { list, spec: spec.clone(), result: serde_json::Value::Null };
        match began_with.connect(entry, &path, watch).await {
            Ok(network) => Ok(network),
            Err(cause) => Err(match self.take_down(spec).await {
                Ok(()) => cause,
                Err(undo) => NetError::Undo { cause: Box::new(cause), undo: undo.chain() },
            }),
        }
    }

    /// Gives the name to a namespace that waits, or to a new one. Returns the watch of what is known already.
    async fn namespace(&self, path: &Path) -> Result<Option<Watch>, NetError> {
        match self.spares.take() {
            Some(Spare { netns, fresh, files, .. }) => {
                netns::name(netns, path).await?;
                Ok(Some(Watch::of(path, fresh, files)))
            }
            None => netns::create(path).await.map(|()| None),
        }
    }

    /// The network of a new pod, whose plugins are all there.
    fn list(&self) -> Result<NetworkList, NetError> {
        let sources = self.sources();
        let loaded = config::load(&sources.conf_dir)?;
        for error in &loaded.skipped {
            tracing::warn!(error = error.chain(), "a CNI configuration is skipped");
        }
        sources.plugins.complete(&loaded.list)?;
        Ok(loaded.list)
    }

    /// Remembers the entry.
    async fn remember(&self, entry: &Entry) -> Result<(), NetError> {
        let entry = entry.clone();
        step(span!("remember the ADD"), self.on_files(move |cni| cni.cache.write(INTERFACE, &entry))).await
    }

    /// Runs the steps of setup that need the namespace, which may be watched already.
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
        self.spares.put_away(watch.take_files());
        let settings = sources.settings.decide(watch.end(sources.settings.replays()).await)?;
        let attaching = netns::within(path, |handle| attach::attach(handle, reported.interfaces));
        let attached = step(span!("make the taps"), attaching).await?;
        Ok(PodNetwork {
            netns: path.to_owned(),
            interfaces: attached.interfaces,
            routes: attached.routes,
            neighbours: attached.neighbours,
            ips: reported.ips,
            settings,
        })
    }

    /// Runs DEL and removes the namespace. The call is idempotent: absent parts are no error. Only `spec.pod_id`
    /// matters where the ADD is remembered; else the rest of `spec` and the present configuration are used.
    ///
    /// # Errors
    /// The failure of a step. The namespace and the cached ADD then stay, for another try.
    pub async fn teardown(&self, spec: &PodNetworkSpec) -> Result<(), NetError> {
        spec.check()?;
        let _shared = self.exclusive.read().await;
        self.take_down(spec).await
    }

    async fn take_down(&self, spec: &PodNetworkSpec) -> Result<(), NetError> {
        let (id, path) = (spec.pod_id.clone(), self.netns_path(&spec.pod_id));
        let netns: OsString = if netns::exists(&path) { (&path).into() } else { OsString::new() };
        let (owned, has_netns) = (spec.clone(), !netns.is_empty());
        if let Some(entry) = self.on_files(move |cni| cni.recorded_add(&owned, has_netns)).await? {
            let sources = self.sources();
            chain(&sources.plugins, &entry, netns).del(&entry.result).await?;
        }
        self.on_files(move |cni| cni.cache.remove(&id, INTERFACE)).await?;
        step(span!("remove the namespace"), netns::remove(&path)).await
    }

    /// Finds the ADD to undo. Without a readable record there is none, unless a trace of the pod is left: then
    /// the present configuration stands in for the record.
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
        Ok(Some(Entry { list, spec: spec.clone(), result: serde_json::Value::Null }))
    }
}

fn chain<'a>(plugins: &'a Plugins, entry: &'a Entry, netns: OsString) -> Chain<'a> {
    Chain { plugins, list: &entry.list, spec: &entry.spec, netns }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const LIST: &str = r#"{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge"}]}"#;

    #[test]
    fn new_directories_count_for_every_clone_and_not_for_a_setup_that_runs() {
        let dir = tempfile::tempdir().unwrap();
        let (conf_dir, bin_dir) = (dir.path().join("net.d"), dir.path().join("bin"));
        for made in [&conf_dir, &bin_dir] {
            fs::create_dir(made).unwrap();
        }
        fs::write(conf_dir.join("10-pods.conflist"), LIST).unwrap();
        let plugin = bin_dir.join("bridge");
        fs::write(&plugin, "").unwrap();
        fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
        let nowhere = dir.path().join("nowhere");
        let dirs = |conf_dir: &Path, bin_dirs: &[&Path]| CniConfig {
            conf_dir: conf_dir.to_owned(),
            bin_dirs: bin_dirs.iter().map(|dir| dir.to_path_buf()).collect(),
            ..CniConfig::default()
        };
        let cni = Cni::new(dirs(&nowhere, &[&nowhere]));
        let (clone, running) = (cni.clone(), cni.as_of_now());
        assert!(cni.ready().is_err());
        cni.configure(dirs(&conf_dir, &[&nowhere]));
        assert!(clone.ready().unwrap_err().chain().contains("bridge"));
        cni.configure(dirs(&conf_dir, &[&nowhere, &bin_dir]));
        clone.ready().unwrap();
        assert!(running.ready().is_err());
    }
}
