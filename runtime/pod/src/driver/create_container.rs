//! Creates a container: admission, room in the VM, devices, record, mounts, agent. Each step is noted in a
//! journal. If one fails, the journal undoes all of them.

use std::sync::Arc;

use runtime_spans::{always, span, step};
use runtime_spec::{ContainerPlan, ContainerSlots, ContainerSpec, VmSize};

use super::Driver;
use super::step::Step;
use super::volumes::PlacedVolumes;
use crate::backend::FoundImage;
use crate::clock;
use crate::command::NewContainerSpec;
use crate::container::mounts::volume_error_first;
use crate::container::{Container, GUEST_PATHS, log, seccomp_file};
use crate::error::PodError;
use crate::journal::Journal;
use crate::live::Live;
use crate::plugs::ContainerPlugs;
use crate::record::{ContainerRecord, ContainerStage, ContainerStatus, HostSocket, JoinedMount};
use crate::spans;
use crate::templates::pages::Until;
use crate::templates::show;

/// An admitted container.
struct NewContainer {
    id: String,
    spec: ContainerSpec,
    image: FoundImage,
    plan: ContainerPlan,
    /// Volumes kept by the guest itself.
    volumes: PlacedVolumes,
    /// Sockets of the node.
    sockets: Vec<HostSocket>,
    /// Mounts at places of other containers.
    joined: Vec<JoinedMount>,
    /// The VM's required size, including this container.
    size: VmSize,
}

impl Driver {
    /// Makes a container and returns its id.
    pub(super) async fn create_container(&mut self, new: NewContainerSpec) -> Result<String, PodError> {
        let NewContainerSpec { id, spec, asking: _asking } = new;
        self.containers.admit(&self.record.id, self.status.stage, &spec.name, spec.attempt)?;
        let image = self.node.backends.find_image(&spec.image)?;
        let id = id.unwrap_or_else(clock::new_id);
        spans::of_container(&id);
        let mut plan = ContainerPlan::resolve(&self.record.spec, &spec, &image.config, &id, &GUEST_PATHS)?;
        let unknown = spec.security.unknown_capabilities();
        if !unknown.is_empty() {
            let capabilities = unknown.join(", ");
            tracing::warn!(
                pod = self.record.id,
                container = id,
                capabilities,
                "unknown capabilities are left out"
            );
        }
        plan.writable_layer_bytes = self.record.layer_limits.of_container(&spec.name);
        if let Some(path) = spec.seccomp_profile_path() {
            let reading = seccomp_file::read(&self.node.pools.paths, path);
            plan.confine(&step(span!("read the seccomp profile"), reading).await?)?;
        }
        if let Some(rules) = plan.syscall_rules().filter(|_| self.status.syscall_filters) {
            let compiling = self.node.filters.compiled(&self.node.pools.kernel, rules);
            let filter = step(span!("compile the seccomp profile"), compiling).await?;
            plan.filter_by(filter);
        }
        self.look_at_room();
        let images_bytes = self.plugs.image_bytes_with(&self.node.backends, &image, &spec);
        let limits = self.containers.limits_with(Some((&id, &spec.resources)));
        let ledger = self.capacity.ledger(images_bytes, limits);
        ledger.check("linux.resources.memory_limit_in_bytes")?;
        let size = ledger.size;
        let live = self.live()?;
        let placing = self.place_volumes(&spec, &mut plan);
        let volumes = step(span!("look at the volumes"), placing).await?;
        let finding = self.place_sockets(&spec, &volumes.on_record, &mut plan);
        let sockets = step(span!("look for sockets"), finding).await?;
        let joining = self.join_places(&spec, &volumes.on_record, &sockets, &mut plan);
        let joined = step(span!("look for the same mounts"), joining).await?;
        let mut journal = Journal::new();
        let new = NewContainer { id: id.clone(), spec, image, plan, volumes, sockets, joined, size };
        match self.make(&live, new, &mut journal).await {
            Ok(container) => {
                self.node.roster.publish_container(container.entry());
                self.containers.insert(container);
                self.publish();
                Ok(id)
            }
            Err(error) => {
                always(span!("undo"), self.undo_change(journal)).await;
                Err(error)
            }
        }
    }

    async fn make(
        &mut self,
        live: &Live,
        new: NewContainer,
        journal: &mut Journal<Step>,
    ) -> Result<Container, PodError> {
        let NewContainer { id, spec, image, plan, volumes, sockets, joined, size } = new;
        journal.note(Step::Pin);
        step(span!("pin"), self.pin_with(live, Some((&id, &spec.resources)))).await?;
        journal.note(Step::Grow(self.capacity.size()));
        step(span!("grow the VM"), self.grow(live, size)).await?;
        always(span!("stop vCPUs"), self.stop_vcpus(live, size.vcpus)).await;
        // All or nothing, so there is nothing to undo before it is done.
        let images_before = self.plugs.image_bytes();
        let plugging = self.plugs.plug(live, &self.node.backends, &image, &spec);
        let plugs = step(span!("plug"), plugging).await?;
        journal.note(Step::Plug(plugs.clone()));
        if self.plugs.image_bytes() < images_before {
            // A larger unused image was unplugged for this one, and its page structures with it.
            self.shrink(live, size).await;
        }
        let ContainerPlugs { slot, image_volumes, disks } = plugs;
        let record = Arc::new(ContainerRecord {
            log_path: log::path(&self.record.spec, &spec),
            pod_id: self.record.id.clone(),
            image_tag: image.tag_of(&spec.user_specified_image),
            image_id: image.id,
            image_ref: image.reference,
            image: image.config,
            created_at_ns: clock::now_after(self.containers.newest(&spec.name)),
            id: id.clone(),
            spec,
            slot,
            image_volumes,
            disks,
            guest_volumes: volumes.on_record.clone(),
            host_sockets: sockets,
            joined,
        });
        journal.note(Step::Acks(id.clone()));
        journal.note(Step::Record(id.clone()));
        let mut status = ContainerStatus::creating();
        self.node.records.put_new_container(&record, &status).await?;
        journal.note(Step::Bind(record.clone()));
        step(span!("bind the mounts"), self.bind_mounts(&record)).await?;
        let output = step(span!("make the log"), log::make(&self.node, &record)).await?;
        let log_path = log::shown_path(&self.node.places, &record);
        journal.note(Step::Guest(id));
        step(span!("plug the volumes"), self.plug_volumes(live, &record)).await?;
        let publishing = self.publish_volumes(live, &record, volumes);
        step(span!("send the volumes"), publishing).await?;
        let slots = slots(&record);
        let creating = live.agent.create_container(&plan, &slots);
        let creating = live.call("creating the container in the guest", creating);
        let user = step(span!("create in the guest"), creating).await;
        status.user = user.map_err(volume_error_first)?;
        step(span!("share the groups"), self.share_groups(live, &record, &status.user)).await?;
        if let Some(template) = self.template.take() {
            show::pages(&self.node, &template, Until::Container, live.vm.pid()).await;
        }
        self.keep_volumes(live, &record);
        self.offer_sockets(&record);
        status.stage = ContainerStage::Created;
        self.node.records.put_container_status(&record.id, &status).await?;
        Ok(Container::new(record, status, &plan, output, log_path))
    }
}

/// The slots of a container's record, in the order of its plan.
fn slots(record: &ContainerRecord) -> ContainerSlots {
    ContainerSlots {
        image: record.slot.number(),
        image_volumes: record.image_volumes.iter().map(|volume| volume.slot.number()).collect(),
        block_devices: record.disks.iter().map(|disk| disk.slot.number()).collect(),
    }
}
