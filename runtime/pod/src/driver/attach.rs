//! The way back to the VM of a pod found on record. A VM that does not answer counts as dead, and is killed:
//! its containers are published as ended, and must not run.

use std::time::Duration;

use super::Driver;
use crate::backend::BackendError;
use crate::counters;
use crate::error::chain_of;
use crate::full_disks::FullDisks;
use crate::live::Live;
use crate::record::{PodStage, VmmProcess};
use crate::slices::in_slices;
use crate::start::undo;
use crate::vm_end;

/// How long connecting to a VMM and its agent may take. A guest on a busy node answers in seconds.
const ATTACH_WITHIN: Duration = Duration::from_secs(60);

/// How long connecting may take where the pod is being stopped. Its VM is about to end.
const ATTACH_TO_STOP_WITHIN: Duration = Duration::from_secs(10);

/// Pause between two attempts to connect.
const ATTACH_PAUSE: Duration = Duration::from_secs(1);

/// Why a connection to a VM failed.
enum Unconnected {
    /// It has ended, or its version is unknown to this daemon.
    Final(String),
    ForNow(String),
}

impl From<BackendError> for Unconnected {
    fn from(error: BackendError) -> Self {
        let why = chain_of(&error);
        if error.may_pass() { Unconnected::ForNow(why) } else { Unconnected::Final(why) }
    }
}

impl Driver {
    /// Connects to the VMM and the agent of a ready pod. An unresponsive VM counts as dead. Returns whether
    /// the VM is gone.
    pub(super) async fn attach(&mut self) -> bool {
        let found = match self.status.vmm {
            Some(vmm) => self.find_again(vmm, ATTACH_WITHIN).await,
            None => Err("its process is not on record".to_owned()),
        };
        counters::pod_recovered(found.is_ok(), self.status.vmm);
        match found {
            Ok(()) => false,
            Err(why) => {
                tracing::warn!(pod = self.record.id, why, "a pod's VM was not found again");
                self.status.stage = PodStage::Dead;
                self.lost = true;
                let (_, why) = self.loss(format!("the pod's VM was not found again: {why}")).await;
                self.status.message = Some(why);
                self.kill_dead().await
            }
        }
    }

    /// Connects to the VM of a pod caught while it was being stopped. It may still write what its guest has
    /// in memory. A VM that does not answer is ended. Returns whether the VM is gone.
    pub(super) async fn attach_to_stop(&mut self) -> bool {
        let Some(vmm) = self.status.vmm else { return self.finish_undo().await };
        match self.find_again(vmm, ATTACH_TO_STOP_WITHIN).await {
            Ok(()) => false,
            Err(why) => {
                tracing::info!(pod = self.record.id, why, "a pod's VM is ended without its guest's help");
                self.finish_undo().await
            }
        }
    }

    /// Connects, and keeps the connection.
    async fn find_again(&mut self, vmm: VmmProcess, most: Duration) -> Result<(), String> {
        let live = self.connect_in_time(vmm, most).await?;
        self.full_disks = FullDisks::of(Some(&live));
        self.live = Some(live);
        Ok(())
    }

    /// Retries the connection for as long as a VM may take. A VM frozen for a while, or a shortage on the
    /// node, can make single calls fail.
    async fn connect_in_time(&self, vmm: VmmProcess, most: Duration) -> Result<Live, String> {
        let mut last = String::new();
        let connecting = async {
            loop {
                match self.connect(vmm).await {
                    Ok(live) => return Ok(live),
                    Err(Unconnected::Final(why)) => return Err(why),
                    Err(Unconnected::ForNow(why)) => {
                        tracing::debug!(pod = self.record.id, why, "a pod's VM does not answer yet");
                        last = why;
                    }
                }
                tokio::time::sleep(ATTACH_PAUSE).await;
            }
        };
        let connected = in_slices(most, connecting).await;
        connected.unwrap_or_else(|| {
            let late = format!("it does not answer within {} s", most.as_secs());
            Err(if last.is_empty() { late } else { format!("{late}: {last}") })
        })
    }

    async fn connect(&self, vmm: VmmProcess) -> Result<Live, Unconnected> {
        let dir = self.node.places.pod_run_dir(&self.record.id);
        let vm = self.node.backends.vms.attach(&dir, vmm).await?;
        let agent = tokio::select! {
            agent = vm.connect() => agent?,
            report = vm.stopped() => return Err(Unconnected::Final(vm_end::describe(&report))),
        };
        Ok(Live::new(vm, agent))
    }

    /// Kills a VM declared dead, if anything is left of it: its containers are published as ended, and must
    /// not run. Returns whether the VM is gone.
    pub(super) async fn kill_dead(&mut self) -> bool {
        match undo::end_vm(&self.node, &self.record, self.status.vmm).await {
            Ok(()) => {
                self.status.vmm = None;
                self.plugs.vm_gone();
                self.status.unclean = None;
                true
            }
            Err(error) => {
                tracing::error!(
                    pod = self.record.id,
                    error = error.chain(),
                    "a dead pod's VM cannot be ended"
                );
                self.status.unclean = Some(error.chain());
                false
            }
        }
    }
}
