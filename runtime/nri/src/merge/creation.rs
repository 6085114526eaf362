//! The merged adjustment of a container during its creation.

use proto_nri::nri::{
    Container, ContainerAdjustment, CreateContainerRequest, CreateContainerResponse, Field, Hooks, KeyValue,
    LinuxContainer, LinuxContainerAdjustment, LinuxDevice, LinuxRdt, Mount,
};
use proto_nri::without_mark;
use protobuf::Message;

use super::keyed::Asking;
use super::owners::Owners;
use super::resources;
use super::updates::MergedUpdates;
use crate::error::NriError;
use crate::name::PluginName;

/// Most bytes of one plugin's answer on the wire. The container's record keeps the result.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The creation of a container, as adjusted by the plugins so far.
#[derive(Clone, Debug)]
pub(crate) struct MergedCreation {
    /// The container as the next plugin sees it.
    pub(crate) request: CreateContainerRequest,
    /// The merged adjustment of all plugins.
    pub(crate) adjustment: ContainerAdjustment,
    pub(crate) updates: MergedUpdates,
    pub(crate) owners: Owners,
}

impl MergedCreation {
    pub(crate) fn new(request: CreateContainerRequest) -> MergedCreation {
        let updates = MergedUpdates::beside_creation(&request.container.id);
        MergedCreation { request, adjustment: ContainerAdjustment::new(), updates, owners: Owners::default() }
    }

    /// Adds a plugin's answer.
    pub(crate) fn add(
        &mut self,
        plugin: &PluginName,
        response: CreateContainerResponse,
    ) -> Result<(), NriError> {
        let bytes = response.compute_size();
        if bytes > ANSWER_BYTES_MAX {
            let reason = format!("{bytes} bytes are more than {ANSWER_BYTES_MAX}");
            return Err(NriError::Invalid { plugin: plugin.clone(), reason });
        }
        let CreateContainerResponse { adjust, update, evict, .. } = response;
        if let Some(asked) = adjust.as_ref() {
            self.adjust(plugin, asked)?;
        }
        if !evict.is_empty() {
            tracing::debug!(%plugin, "evictions are passed over, as by other runtimes");
        }
        self.updates.add(&mut self.owners, plugin, update)
    }

    fn adjust(&mut self, plugin: &PluginName, asked: &ContainerAdjustment) -> Result<(), NriError> {
        let MergedCreation { request, adjustment: merged, owners, .. } = self;
        let container = request.container.mut_or_insert_default();
        let id = container.id.clone();
        let mut asking = Asking { owners, container: &id, plugin };
        words(&mut asking, asked, merged, container)?;
        for limit in &asked.rlimits {
            asking.claim(Field::Rlimits, &limit.type_)?;
            merged.rlimits.push(limit.clone());
            container.rlimits.retain(|known| known.type_ != limit.type_);
            container.rlimits.push(limit.clone());
        }
        for device in &asked.CDI_devices {
            asking.claim(Field::CdiDevices, &device.name)?;
            merged.CDI_devices.push(device.clone());
        }
        if let Some(hooks) = asked.hooks.as_ref() {
            add_hooks(&mut asking, hooks, merged.hooks.mut_or_insert_default());
        }
        let Some(asked) = asked.linux.as_ref() else { return Ok(()) };
        let merged = merged.linux.mut_or_insert_default();
        linux(&mut asking, asked, merged, container.linux.mut_or_insert_default())
    }
}

/// Merges annotations, mounts, variables and arguments.
fn words(
    asking: &mut Asking<'_>,
    asked: &ContainerAdjustment,
    merged: &mut ContainerAdjustment,
    container: &mut Container,
) -> Result<(), NriError> {
    let annotations = &mut container.annotations;
    asking.map(Field::Annotations, &asked.annotations, &mut merged.annotations, annotations)?;
    let replaced = asking.list(Field::Mounts, &asked.mounts, &mut merged.mounts)?;
    container.mounts.retain(|mount| !replaced.contains(&mount.destination));
    let set = |mount: &&Mount| !without_mark(&mount.destination).1;
    container.mounts.extend(asked.mounts.iter().filter(set).cloned());
    let replaced = asking.list(Field::Env, &asked.env, &mut merged.env)?;
    container.env.retain(|entry| !replaced.contains(name_of(entry)));
    container.env.extend(asked.env.iter().filter_map(entry));
    let Some((first, rest)) = asked.args.split_first() else { return Ok(()) };
    // An empty first word stands for the removal of the earlier arguments.
    let args = if first.is_empty() { rest } else { &asked.args };
    if first.is_empty() {
        asking.clear(Field::Args, "");
    }
    asking.claim(Field::Args, "")?;
    merged.args = args.to_vec();
    container.args = args.to_vec();
    Ok(())
}

fn add_hooks(asking: &mut Asking<'_>, asked: &Hooks, merged: &mut Hooks) {
    let before = merged.clone();
    merged.prestart.extend(asked.prestart.iter().cloned());
    merged.create_runtime.extend(asked.create_runtime.iter().cloned());
    merged.create_container.extend(asked.create_container.iter().cloned());
    merged.start_container.extend(asked.start_container.iter().cloned());
    merged.poststart.extend(asked.poststart.iter().cloned());
    merged.poststop.extend(asked.poststop.iter().cloned());
    if *merged != before {
        asking.owners.add_hooks(asking.container, asking.plugin);
    }
}

/// Merges the Linux-only parts.
fn linux(
    asking: &mut Asking<'_>,
    asked: &LinuxContainerAdjustment,
    merged: &mut LinuxContainerAdjustment,
    container: &mut LinuxContainer,
) -> Result<(), NriError> {
    let replaced = asking.list(Field::Devices, &asked.devices, &mut merged.devices)?;
    container.devices.retain(|device| !replaced.contains(&device.path));
    let set = |device: &&LinuxDevice| !without_mark(&device.path).1;
    container.devices.extend(asked.devices.iter().filter(set).cloned());
    asking.map(Field::Sysctl, &asked.sysctl, &mut merged.sysctl, &mut container.sysctl)?;
    let net_devices = &mut container.net_devices;
    asking.map(Field::LinuxNetDevices, &asked.net_devices, &mut merged.net_devices, net_devices)?;
    if let Some(asked) = asked.resources.as_ref() {
        resources::claim(asking.owners, asking.container, asking.plugin, asked)?;
        resources::overlay(merged.resources.mut_or_insert_default(), asked);
        resources::overlay(container.resources.mut_or_insert_default(), asked);
    }
    if !asked.cgroups_path.is_empty() {
        asking.claim(Field::CgroupsPath, "")?;
        merged.cgroups_path.clone_from(&asked.cgroups_path);
        container.cgroups_path.clone_from(&asked.cgroups_path);
    }
    macro_rules! single {
        ($($field:ident: $number:ident),+) => {
            $(if asked.$field.is_some() {
                asking.claim(Field::$number, "")?;
                merged.$field = asked.$field.clone();
                container.$field = asked.$field.clone();
            })+
        };
    }
    single!(oom_score_adj: OomScoreAdj, io_priority: IoPriority, seccomp_policy: SeccompPolicy, scheduler: LinuxSched);
    if asked.memory_policy.is_some() {
        asking.claim(Field::MemoryPolicy, "")?;
        merged.memory_policy = asked.memory_policy.clone();
    }
    for namespace in &asked.namespaces {
        asking.claim(Field::Namespace, without_mark(&namespace.type_).0)?;
        merged.namespaces.push(namespace.clone());
    }
    match asked.rdt.as_ref() {
        Some(asked) => rdt(asking, asked, merged.rdt.mut_or_insert_default()),
        None => Ok(()),
    }
}

fn rdt(asking: &mut Asking<'_>, asked: &LinuxRdt, merged: &mut LinuxRdt) -> Result<(), NriError> {
    if asked.remove {
        for field in [Field::RdtClosID, Field::RdtSchemata, Field::RdtEnableMonitoring] {
            asking.clear(field, "");
        }
        *merged = LinuxRdt { remove: true, ..Default::default() };
    }
    macro_rules! single {
        ($($field:ident: $number:ident),+) => {
            $(if asked.$field.is_some() {
                asking.claim(Field::$number, "")?;
                merged.$field = asked.$field.clone();
                merged.remove = false;
            })+
        };
    }
    single!(clos_id: RdtClosID, schemata: RdtSchemata, enable_monitoring: RdtEnableMonitoring);
    Ok(())
}

fn name_of(entry: &str) -> &str {
    entry.split_once('=').map_or(entry, |(name, _)| name)
}

/// A variable in the form `name=value`. `None` if it is marked for removal.
fn entry(variable: &KeyValue) -> Option<String> {
    let (name, is_marked) = without_mark(&variable.key);
    (!is_marked).then(|| format!("{name}={}", variable.value))
}

#[cfg(test)]
mod tests;
