//! Disturbances of the clients: one at a time, for some seconds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::Rng;
use rand::rngs::StdRng;
use tests_e2e::Host;
use tests_e2e::network::PLUGINS;

use super::model::Ledger;

/// Milliseconds between two disturbances, and of one.
const PAUSE_MS: std::ops::Range<u64> = 1000..8000;
const LENGTH_MS: std::ops::Range<u64> = 500..6000;
/// How long calls after a disturbance may still fail because of it: the store looks for space again, plugins
/// are called again.
const AFTERMATH: Duration = Duration::from_secs(5);
/// The delayed plugin, and the file behind the delay.
const PLUGIN: &str = "bridge";
const GATE: &str = "plugins/hold";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    DaemonKilled,
    VmmKilled,
    VmmFrozen,
    DiskFull,
    DiskFrozen,
    PluginHangs,
}

/// Replaces the plugin by a script waiting while the gate's file exists.
pub(super) async fn put_gate_before_plugins(host: &mut Host) {
    let gate = host.dir().join(GATE);
    let script = format!("while [ -e {} ]; do sleep 0.2; done\nexec {PLUGINS}/{PLUGIN}", gate.display());
    host.put_before_plugin(PLUGIN, &script).await.unwrap();
}

pub(super) struct Disturber<'a> {
    host: &'a mut Host,
    random: StdRng,
    ledger: &'a Ledger,
    gate: PathBuf,
}

impl<'a> Disturber<'a> {
    pub(super) fn new(host: &'a mut Host, random: StdRng, ledger: &'a Ledger) -> Disturber<'a> {
        let gate = host.dir().join(GATE);
        Disturber { host, random, ledger, gate }
    }

    /// Disturbs until then, or until `failed` returns true; returns the count of each kind.
    pub(super) async fn disturb(
        mut self,
        until: Instant,
        failed: impl Fn() -> bool,
    ) -> BTreeMap<Kind, usize> {
        let mut kinds = BTreeMap::new();
        while Instant::now() < until && !failed() {
            tokio::time::sleep(Duration::from_millis(self.random.random_range(PAUSE_MS))).await;
            let kind = match self.random.random_range(0..10) {
                0..3 => Kind::DaemonKilled,
                3..5 => Kind::VmmKilled,
                5 => Kind::VmmFrozen,
                6 => Kind::DiskFull,
                7 | 8 => Kind::DiskFrozen,
                _ => Kind::PluginHangs,
            };
            let length = Duration::from_millis(self.random.random_range(LENGTH_MS));
            if self.one(kind, length).await {
                *kinds.entry(kind).or_default() += 1;
            }
        }
        kinds
    }

    /// Returns whether there was something to disturb.
    async fn one(&mut self, kind: Kind, length: Duration) -> bool {
        match kind {
            Kind::VmmKilled => return self.kill_vmm().await,
            Kind::VmmFrozen => return self.freeze_vmm(length).await,
            _ => {}
        }
        self.ledger.begin();
        match kind {
            Kind::DaemonKilled => {
                self.ledger.kill();
                self.host.daemon.kill_and_restart().await.unwrap();
            }
            Kind::DiskFull => {
                self.host.disk().fill().unwrap();
                tokio::time::sleep(length).await;
                self.host.disk().free().unwrap();
            }
            Kind::DiskFrozen => {
                self.host.disk().freeze().unwrap();
                tokio::time::sleep(length).await;
                self.host.disk().thaw().unwrap();
            }
            _ => {
                std::fs::write(&self.gate, "").unwrap();
                tokio::time::sleep(length).await;
                std::fs::remove_file(&self.gate).unwrap();
            }
        }
        tokio::time::sleep(AFTERMATH).await;
        self.ledger.end();
        true
    }

    async fn kill_vmm(&mut self) -> bool {
        let Some((pod, vmm)) = self.some_vmm().await else { return false };
        // Said first: from then on the client takes the pod for lost.
        self.ledger.lose(&pod) && kill(vmm, Signal::SIGKILL).is_ok()
    }

    async fn freeze_vmm(&mut self, length: Duration) -> bool {
        let Some((_, vmm)) = self.some_vmm().await else { return false };
        self.ledger.begin();
        let frozen = kill(vmm, Signal::SIGSTOP).is_ok();
        tokio::time::sleep(length).await;
        // It may have been given up and killed meanwhile.
        let _ = kill(vmm, Signal::SIGCONT);
        tokio::time::sleep(AFTERMATH).await;
        self.ledger.end();
        frozen
    }

    /// A pod and its running VMM, if there is one.
    async fn some_vmm(&mut self) -> Option<(String, Pid)> {
        let offered = self.ledger.offered();
        if offered.is_empty() {
            return None;
        }
        let pod = offered[self.random.random_range(0..offered.len())].clone();
        let (_, info) = self.host.client().pod_status_verbose(&pod).await.ok()?;
        let pid = i32::try_from(info["vmm"]["pid"].as_i64()?).ok()?;
        let name = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm")).ok()?;
        name.starts_with("podvisor-vmm").then(|| (pod, Pid::from_raw(pid)))
    }
}
