//! Health check of the node: probes it periodically, and publishes the usable devices.
//!
//! | KVM | memory | usable devices |
//! |---|---|---|
//! | works | enough for one more VM | all |
//! | works | short | those held by pods; none if the kubelet does not list them |
//! | does not work | any | none |
//!
//! The kubelet leaves running pods alone when their devices turn unhealthy. But it shows the device in the
//! pod's status. It also refuses a pod with an unhealthy device when it admits the pod again (a resize, or
//! the kubelet's own restart while a container is down). So if only memory is short, a device held by a pod
//! stays healthy: the pod's VM has all it needs. A restarting kubelet lists no pods for a moment. So a device
//! counts as free only when two lists in a row are without it, and the last list counts while there is none.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use crate::Config;
use crate::devices::{Devices, Usable};
use crate::holders::held;
use crate::memory::Memory;
use crate::probe::Probe;
use crate::tuning::Tuning;

/// State of the health-check task.
pub(crate) struct Health<P> {
    config: Arc<Config>,
    tuning: Tuning,
    devices: Devices,
    probe: Arc<P>,
    memory: Memory,
    published: watch::Sender<Usable>,
    /// Devices held by pods at the last probe, while memory is short.
    held: BTreeSet<u16>,
    /// Last logged reason, so that each is logged once.
    logged: String,
    /// A probe past its deadline. No second one starts beside it.
    late: Option<JoinHandle<Result<u64, String>>>,
}

impl<P: Probe> Health<P> {
    /// Health before the first probe: no device is usable yet.
    pub(crate) fn new(config: Arc<Config>, tuning: Tuning, probe: P) -> Health<P> {
        Health {
            devices: Devices { count: config.vms },
            memory: Memory::new(config.vm_bytes),
            probe: Arc::new(probe),
            published: watch::Sender::new(Usable::None),
            held: BTreeSet::new(),
            logged: String::new(),
            late: None,
            config,
            tuning,
        }
    }

    /// Returns the published state.
    pub(crate) fn published(&self) -> watch::Receiver<Usable> {
        self.published.subscribe()
    }

    /// Probes for ever.
    pub(crate) async fn keep_looking(&mut self) {
        loop {
            tokio::time::sleep(self.tuning.look_every).await;
            self.look().await;
        }
    }

    /// Probes once, and publishes any change.
    pub(crate) async fn look(&mut self) {
        let usable = match self.available().await {
            Err(reason) => {
                self.log(&format!("no VM can run here, and every device is unhealthy: {reason}"), false);
                Usable::None
            }
            Ok(available) if self.memory.is_short(available) => self.short().await,
            Ok(_) => {
                self.log("VMs can run here, and every device is healthy", true);
                self.held.clear();
                Usable::All
            }
        };
        self.published.send_if_modified(|published| {
            let changed = *published != usable;
            *published = usable;
            changed
        });
    }

    /// Returns the available memory in bytes, or the reason why no VM can run. Waits no longer than a probe's
    /// deadline.
    async fn available(&mut self) -> Result<u64, String> {
        let probe = self.probe.clone();
        let mut look = self.late.take().unwrap_or_else(|| tokio::task::spawn_blocking(move || probe.look()));
        match tokio::time::timeout(self.tuning.look_deadline, &mut look).await {
            Ok(Ok(looked)) => looked,
            Ok(Err(error)) => Err(format!("the look at KVM and memory failed: {error}")),
            Err(_) => {
                self.late = Some(look);
                let deadline = self.tuning.look_deadline;
                Err(format!("KVM or /proc/meminfo does not answer within {deadline:?}"))
            }
        }
    }

    /// Returns the usable devices while memory is short.
    async fn short(&mut self) -> Usable {
        let config = self.config.clone();
        let Config { pod_resources, resource, .. } = &*config;
        let held = held(pod_resources, resource, self.devices, self.tuning.look_deadline).await;
        let short = format!(
            "memory for one more VM is short (less than {} MiB available)",
            self.memory.needed() >> 20
        );
        match held {
            Ok(held) => {
                self.log(&format!("{short}, and devices not held by a pod are unhealthy"), false);
                let before = std::mem::replace(&mut self.held, held);
                Usable::Held(before.union(&self.held).copied().collect())
            }
            Err(reason) => {
                let socket = pod_resources.display().to_string();
                if let published @ Usable::Held(_) = &*self.published.borrow() {
                    debug!(socket, reason, "the kubelet does not list its pods, and the last list counts");
                    return published.clone();
                }
                let text = format!(
                    "{short}, and every device is unhealthy: {socket} does not list the devices held by pods: {reason}"
                );
                self.log(&text, false);
                Usable::None
            }
        }
    }

    fn log(&mut self, text: &str, good: bool) {
        if self.logged == text {
            return;
        }
        if good {
            info!("{text}");
        } else {
            warn!("{text}");
        }
        text.clone_into(&mut self.logged);
    }
}
