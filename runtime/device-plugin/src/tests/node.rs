//! A node with a plugin: a directory for the kubelet, a KVM and a memory set by the test, and the plugin's
//! task.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::plugin::run_with;
use crate::probe::Probe;
use crate::socket::NAME;
use crate::tuning::Tuning;
use crate::{Config, PluginError};

/// How long a test waits for an expected event. Far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a test waits for an event not to happen. Most likely it would have happened by then.
const MOMENT: Duration = Duration::from_millis(100);

/// Memory in bytes of one more VM on the test's node.
pub(super) const VM_BYTES: u64 = 300 << 20;

/// A node's KVM and memory.
#[derive(Clone, Debug)]
pub(super) struct Hardware(Arc<Mutex<Result<u64, String>>>);

impl Hardware {
    /// Sets the available memory of a node with a working KVM.
    pub(super) fn set_available(&self, bytes: u64) {
        *self.0.lock().unwrap() = Ok(bytes);
    }

    /// Sets a reason why no VM can run.
    pub(super) fn set_broken(&self, reason: &str) {
        *self.0.lock().unwrap() = Err(reason.to_owned());
    }

    /// Holds every look until the guard is dropped.
    pub(super) fn hang(&self) -> std::sync::MutexGuard<'_, Result<u64, String>> {
        self.0.lock().unwrap()
    }
}

impl Probe for Hardware {
    fn look(&self) -> Result<u64, String> {
        self.0.lock().unwrap().clone()
    }
}

/// A node, and its running plugin.
pub(super) struct Node {
    dir: TempDir,
    pub(super) hardware: Hardware,
    pub(super) tuning: Tuning,
    pub(super) vms: u16,
    stop: Option<oneshot::Sender<()>>,
    plugin: Option<JoinHandle<Result<(), PluginError>>>,
}

impl Node {
    /// A node with the kubelet's directory and no plugin. Timeouts not shortened by a test do not end within
    /// it.
    pub(super) fn new() -> Node {
        let hour = Duration::from_secs(3600);
        let node = Node {
            dir: tempfile::tempdir().unwrap(),
            hardware: Hardware(Arc::new(Mutex::new(Ok(64 << 30)))),
            tuning: Tuning {
                look_every: Duration::from_millis(5),
                look_deadline: PATIENCE,
                poll_every: hour,
                notify: true,
                settle: Duration::from_millis(1),
                register_deadline: PATIENCE,
                retry_first: Duration::from_millis(1),
                retry_max: Duration::from_millis(20),
                refused_retry: hour,
                unwatched: hour,
                drain: PATIENCE,
            },
            vms: 4,
            stop: None,
            plugin: None,
        };
        std::fs::create_dir(node.directory()).unwrap();
        node
    }

    /// A node with a running plugin.
    pub(super) fn with_plugin() -> Node {
        let mut node = Node::new();
        node.start();
        node
    }

    /// Starts the plugin.
    pub(super) fn start(&mut self) {
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let (config, tuning, hardware) = (self.config(), self.tuning, self.hardware.clone());
        self.plugin = Some(tokio::spawn(run_with(config, tuning, hardware, stopped)));
        self.stop = Some(stop);
    }

    /// Stops the plugin as SIGTERM does, and returns how it ended.
    pub(super) async fn stop(&mut self) -> Result<(), PluginError> {
        // The plugin may have ended by itself.
        let _ = self.stop.take().unwrap().send(());
        soon(self.plugin.take().unwrap()).await.unwrap()
    }

    /// Ends the plugin as SIGKILL does: nothing is tidied up.
    pub(super) async fn kill(&mut self) {
        let plugin = self.plugin.take().unwrap();
        plugin.abort();
        let _ = plugin.await;
    }

    /// The plugin's configuration at its start.
    pub(super) fn config(&self) -> Config {
        Config {
            directory: self.directory(),
            pod_resources: self.pod_resources(),
            resource: "podvisor.io/vm".parse().unwrap(),
            vms: self.vms,
            vm_bytes: VM_BYTES,
        }
    }

    /// The kubelet's directory of plugins.
    pub(super) fn directory(&self) -> PathBuf {
        self.dir.path().join("device-plugins")
    }

    /// The kubelet's pod-resources socket.
    pub(super) fn pod_resources(&self) -> PathBuf {
        self.dir.path().join("pod-resources.sock")
    }

    /// The plugin's socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.directory().join(NAME)
    }
}

/// Waits for an expected event.
pub(super) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it came in time")
}

/// Waits until something is so.
pub(super) async fn until(mut is_so: impl FnMut() -> bool) {
    soon(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Whether something does not come within a moment.
pub(super) async fn not_soon<T>(what: impl Future<Output = T>) -> bool {
    tokio::time::timeout(MOMENT, what).await.is_err()
}
