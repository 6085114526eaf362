//! A driver for a pod that an earlier daemon made.

use std::sync::Arc;

use runtime_spec::resolve;

use super::Driver;
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
        driver.keep_status().await;
        for (record, status) in left {
            let id = record.id.clone();
            if let Err(error) = driver.take_up(Arc::new(record), status).await {
                tracing::error!(container = id, error = error.chain(), "a container was not recovered");
            }
        }
        driver.pin().await;
        driver.publish();
        tokio::spawn(driver.run());
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
        let forgotten = match driver.node.records.forget(None, &containers).await {
            Ok(()) => driver.forget().await,
            Err(error) => Err(error),
        };
        if let Err(error) = forgotten {
            driver.status.unclean = Some(error.chain());
            driver.publish();
            tokio::spawn(driver.run());
        }
    }

    async fn take_up(
        &mut self,
        record: Arc<ContainerRecord>,
        mut status: ContainerStatus,
    ) -> Result<(), PodError> {
        let id = record.id.clone();
        if status.stage == ContainerStage::Creating {
            // The guest may have it or not; nobody was told of it.
            if let Some(live) = &self.live {
                live.call("removing a half-made container", live.agent.remove_container(&id)).await?;
            }
            self.unbind_mounts(&id, &record.spec).await?;
            self.node.records.forget(None, std::slice::from_ref(&id)).await?;
            if let Some(live) = self.live.clone() {
                record.disks.iter().for_each(|disk| self.disks.hold(disk.slot, &disk.key));
                self.release_disks(&live, &record.disks).await;
            }
            return Ok(());
        }
        if status.stage == ContainerStage::Starting {
            status.stage = ContainerStage::Unknown;
        }
        let container = self.open_container(&record, status).await?;
        if self.live.is_some() {
            self.slots.hold(record.slot, &record.image_id);
            for volume in &record.image_volumes {
                self.slots.hold(volume.slot, &volume.image_id);
            }
            record.disks.iter().for_each(|disk| self.disks.hold(disk.slot, &disk.key));
        }
        self.containers.insert(id.clone(), container);
        match self.live.clone() {
            Some(live) => self.watch_again(&live, &id).await,
            None => self.lose_with_pod(&id),
        }
        self.keep_container(&id).await;
        Ok(())
    }

    async fn open_container(
        &self,
        record: &Arc<ContainerRecord>,
        status: ContainerStatus,
    ) -> Result<Container, PodError> {
        let resolved = resolve(&self.record.spec, &record.spec, &record.image, &record.id, &GUEST_PATHS)?;
        let ended = status.stage == ContainerStage::Exited;
        let output = log::open(&self.node.places, record, !ended).await?;
        let log_path = log::shown_path(&self.node.places, record);
        Ok(Container::new(record.clone(), status, &resolved, output, log_path))
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

    fn lose_with_pod(&mut self, id: &str) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.status.stage != ContainerStage::Exited {
            let why = self.status.message.clone().unwrap_or_else(|| "the pod was stopped".to_owned());
            container.exit(clock::now_ns(), LOST_CODE, "Error", why);
        }
    }
}
