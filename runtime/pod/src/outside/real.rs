//! The real things. Each call is passed on as it is.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use proto_agent::port;
use proto_vmm::{Slot, StopReport, VmStats};
use runtime_image::Images;
use runtime_net::{Cni, PodNetwork, PodNetworkSpec};
use runtime_vm::{Size, Spawn, Vm};

use super::guest;
use super::{
    Agent, BootRequest, Fault, FoundImage, ImageSource, Machine, Machines, Network, Plug, SpawnRequest,
};

/// CNI.
#[derive(Debug)]
pub(crate) struct CniNetwork(pub(crate) Cni);

#[async_trait]
impl Network for CniNetwork {
    async fn setup(&self, spec: &PodNetworkSpec) -> Result<PodNetwork, Fault> {
        Ok(self.0.setup(spec).await?)
    }

    async fn teardown(&self, spec: &PodNetworkSpec) -> Result<(), Fault> {
        Ok(self.0.teardown(spec).await?)
    }
}

/// The node's image store.
#[derive(Debug)]
pub(crate) struct StoredImages(pub(crate) Images);

impl ImageSource for StoredImages {
    fn find(&self, name: &str) -> Option<FoundImage> {
        let image = self.0.find(name)?;
        Some(FoundImage { id: image.id, config: image.config.run })
    }

    fn open(&self, id: &str) -> Result<File, Fault> {
        let image = self.0.find(id).ok_or_else(|| format!("image {id} was removed meanwhile"))?;
        Ok(self.0.open_erofs(&image)?)
    }
}

/// Monitors of our own.
#[derive(Debug)]
pub(crate) struct VmMachines {
    pub(crate) binary: PathBuf,
}

#[async_trait]
impl Machines for VmMachines {
    async fn spawn(&self, request: SpawnRequest) -> Result<Arc<dyn Machine>, Fault> {
        crate::shared::make(&request.shared)
            .map_err(|error| format!("mounting {}: {error}", request.shared.display()))?;
        let spawn = Spawn {
            binary: &self.binary,
            dir: &request.dir,
            shared: &request.shared,
            cgroups: &request.cgroups,
            id: &request.id,
            log: request.log,
        };
        Ok(Arc::new(VmMachine(Vm::spawn(spawn).await?)))
    }

    async fn attach(&self, dir: &Path, pid: u32, start_time: u64) -> Result<Arc<dyn Machine>, Fault> {
        Ok(Arc::new(VmMachine(Vm::attach(dir, pid, start_time).await?)))
    }
}

/// One of them.
#[derive(Debug)]
struct VmMachine(Vm);

#[async_trait]
impl Machine for VmMachine {
    fn pid(&self) -> u32 {
        self.0.pid()
    }

    fn start_time(&self) -> u64 {
        self.0.start_time()
    }

    async fn boot(&self, request: BootRequest) -> Result<(), Fault> {
        let BootRequest { bounds, kernel, root_image, scratch } = request;
        let disk = runtime_vm::Plug::Blk { image: scratch, read_only: false };
        let share = runtime_vm::Plug::Fs { tag: proto_agent::SHARE_TAG.to_owned() };
        let devices = vec![(Slot::SCRATCH, disk), (Slot::FS, share)];
        let size = Size {
            memory_bytes: bounds.boot.memory_bytes,
            memory_max_bytes: bounds.most.memory_bytes,
            vcpus: bounds.most.vcpus,
        };
        let booted = self.0.boot(size, "", &kernel, &root_image, devices);
        Ok(booted.await?)
    }

    async fn greet(&self) -> Result<Arc<dyn Agent>, Fault> {
        let stream = self.0.guest_stream(port::READY).await?;
        guest::ready(stream).await?;
        self.connect().await
    }

    async fn connect(&self) -> Result<Arc<dyn Agent>, Fault> {
        guest::connect(self.0.vsock_path()).await
    }

    async fn plug(&self, slot: Slot, plug: Plug) -> Result<(), Fault> {
        let plug = match plug {
            Plug::Image(file) => runtime_vm::Plug::Pmem(file),
            Plug::Disk { file, read_only } => runtime_vm::Plug::Blk { image: file, read_only },
            Plug::Net { tap, mac, mtu } => runtime_vm::Plug::Net { tap, mac, mtu },
        };
        Ok(self.0.plug(slot, plug).await?)
    }

    async fn unplug(&self, slot: Slot) -> Result<(), Fault> {
        Ok(self.0.unplug(slot).await?)
    }

    async fn resize(&self, memory_bytes: u64) -> Result<(), Fault> {
        Ok(self.0.resize(memory_bytes).await?)
    }

    async fn resized(&self) {
        self.0.resized().await;
    }

    async fn pin(&self, cpus: &[u32]) -> Result<(), Fault> {
        Ok(self.0.pin_vcpus(cpus)?)
    }

    async fn stats(&self) -> Result<VmStats, Fault> {
        Ok(self.0.stats().await?)
    }

    async fn console(&self) -> Result<String, Fault> {
        Ok(self.0.console().await?)
    }

    async fn shutdown(&self) -> Result<(), Fault> {
        Ok(self.0.shutdown().await?)
    }

    async fn stopped(&self) -> StopReport {
        self.0.stopped().await
    }
}
