//! A driver for a pod that an earlier daemon made.

use std::sync::Arc;

use proto_vmm::Slot;
use runtime_spec::{ContainerPlan, ExitReason};

use super::{Driver, step};
use crate::clock;
use crate::container::{Container, GUEST_PATHS, LOST_CODE, log, watcher};
use crate::error::PodError;
use crate::io::copiers::Copiers;
use crate::live::Live;
use crate::node::Node;
use crate::record::{
    ContainerOnRecord, ContainerRecord, ContainerStage, ContainerStatus, PodRecord, PodStage, PodStatus,
};

impl Driver {
    /// Takes the pod up again, with its containers, and drives it.
    pub(crate) async fn recover(
        node: Arc<Node>,
        record: Arc<PodRecord>,
        mut status: PodStatus,
        live: Option<Live>,
        left: Vec<ContainerOnRecord>,
    ) {
        if status.stage == PodStage::Stopped {
            (status.vmm, status.netns, status.unclean) = (None, None, None);
            status.ips.clear();
        }
        let mut driver = Driver::new(node, record, status, live);
        driver.save_status().await;
        for (record, status) in left {
            let id = record.id.clone();
            if let Err(error) = driver.recover_container(Arc::new(record), status).await {
                tracing::error!(container = id, error = error.chain(), "a container was not recovered");
            }
        }
        driver.compare_plugs().await;
        driver.pin().await;
        driver.publish();
        tokio::spawn(driver.run());
    }

    /// Compares the devices on record with those that the VMM has.
    async fn compare_plugs(&mut self) {
        let Some(live) = self.live.clone() else { return };
        let pod = &self.record.id;
        match self.plugs.compare(&live).await {
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) => {
                let slots: Vec<u8> = missing.into_iter().map(Slot::number).collect();
                tracing::error!(pod, ?slots, "a VM lacks devices that its containers have on record");
            }
            Err(error) => {
                tracing::error!(
                    pod,
                    error = error.chain(),
                    "a VM's devices are not compared with the records"
                );
            }
        }
    }

    /// Forgets a pod whose half-done start has been undone.
    pub(crate) async fn forget_undone(
        node: Arc<Node>,
        record: Arc<PodRecord>,
        status: PodStatus,
        left: Vec<ContainerOnRecord>,
    ) {
        let containers: Vec<String> = left.into_iter().map(|(record, _)| record.id).collect();
        let mut driver = Driver::new(node, record, status, None);
        driver.node.records.forget(None, &containers).await;
        if let Err(error) = driver.forget().await {
            driver.status.unclean = Some(error.chain());
            driver.publish();
            tokio::spawn(driver.run());
        }
    }

    async fn recover_container(
        &mut self,
        record: Arc<ContainerRecord>,
        mut status: ContainerStatus,
    ) -> Result<(), PodError> {
        let id = record.id.clone();
        if status.stage == ContainerStage::Creating {
            // The guest may have it or not; no caller knows of it.
            if self.live.is_some() {
                self.plugs.hold(&record);
            }
            return step::made(&record).drain_until_failure(self).await;
        }
        if status.stage == ContainerStage::Starting {
            status.stage = ContainerStage::Unknown;
        }
        let container = self.open_container(&record, status).await?;
        if self.live.is_some() {
            self.plugs.hold(&record);
        }
        self.containers.insert(container);
        match self.live.clone() {
            Some(live) => self.watch_again(&live, &id).await,
            None => self.end_with_pod(&id),
        }
        self.save_container(&id).await;
        Ok(())
    }

    async fn open_container(
        &self,
        record: &Arc<ContainerRecord>,
        status: ContainerStatus,
    ) -> Result<Container, PodError> {
        let plan =
            ContainerPlan::resolve(&self.record.spec, &record.spec, &record.image, &record.id, &GUEST_PATHS)?;
        let ended = status.stage == ContainerStage::Exited;
        let output = log::open(&self.node.places, record, !ended).await?;
        let log_path = log::shown_path(&self.node.places, record);
        Ok(Container::new(record.clone(), status, &plan, output, log_path))
    }

    /// Goes on with what runs, at the byte that its log has.
    async fn watch_again(&self, live: &Live, id: &str) {
        let Some(container) = self.containers.get(id) else { return };
        if !matches!(container.status.stage, ContainerStage::Running | ContainerStage::Unknown) {
            return;
        }
        let copiers = Copiers::resume(live, id, &container.record.spec, &container.output).await;
        watcher::watch(live.clone(), id.to_owned(), copiers, self.exit_sender.clone());
    }

    fn end_with_pod(&mut self, id: &str) {
        let why = self.status.message.clone().unwrap_or_else(|| "the pod was stopped".to_owned());
        self.containers.exit(id, clock::now_ns(), LOST_CODE, ExitReason::Error, why);
    }
}
