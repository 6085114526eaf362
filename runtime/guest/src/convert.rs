//! Converts plans to wire messages, and answers to the daemon's types. Pure. All conversions for containers
//! and their processes are here.

use std::path::Path;
use std::time::Duration;

use proto_agent::agent::{
    self, BlockDevice, CreateContainerRequest, DeclaredVolume, ExecRequest, GuestVolume, HostSocket,
    ImageVolume, SignalRequest, WaitResponse,
};
use runtime_spec::{
    ContainerPlan, ContainerSlots, DeclaredVolumePlan, DiskVolume, ExecPlan, ExitReason, FileAccess,
    GuestVolumeContent, GuestVolumePlan, HostSocketPlan, MemoryVolume, Signal, SocketPlace, VolumeLimits,
};
use serde::Serialize;

use crate::error::GuestError;
use crate::process::{ProcessExit, SignalTarget};

/// The request to create the container of `plan` from the devices in `slots`.
pub(crate) fn create_container(
    method: &'static str,
    plan: &ContainerPlan,
    slots: &ContainerSlots,
) -> Result<CreateContainerRequest, GuestError> {
    let volumes = plan.image_volumes.iter().zip(&slots.image_volumes);
    let devices = plan.block_devices.iter().zip(&slots.block_devices);
    Ok(CreateContainerRequest {
        container_id: plan.container_id.clone(),
        spec_json: json(method, &plan.oci)?,
        image_slot: u32::from(slots.image),
        user: plan.user.clone(),
        tty: plan.tty,
        stdin: plan.stdin,
        strict_groups: plan.strict_groups,
        pid_target: plan.pid_target.clone().unwrap_or_default(),
        guest_devices: plan.guest_devices,
        shared_mounts: plan.shared_mounts,
        image_volumes: volumes
            .map(|(volume, slot)| ImageVolume {
                source: volume.source.clone(),
                slot: u32::from(*slot),
                sub_path: volume.sub_path.clone(),
                ..ImageVolume::default()
            })
            .collect(),
        declared_volumes: plan.declared_volumes.iter().map(declared_volume).collect(),
        guest_volumes: plan.guest_volumes.iter().map(guest_volume).collect(),
        host_sockets: plan
            .host_sockets
            .iter()
            .map(|socket| host_socket(method, socket))
            .collect::<Result<_, _>>()?,
        block_devices: devices
            .map(|(device, slot)| BlockDevice {
                slot: u32::from(*slot),
                path: device.path.clone(),
                permissions: device.permissions.clone(),
                uid: device.uid.unwrap_or_default(),
                gid: device.gid.unwrap_or_default(),
                process_uid: device.uid.is_none(),
                process_gid: device.gid.is_none(),
                mode: device.mode,
                ..BlockDevice::default()
            })
            .collect(),
        cgroup_files: plan.cgroup_files.clone().into_iter().collect(),
        writable_layer_bytes: plan.writable_layer_bytes.unwrap_or_default(),
        syscall_filter: plan.syscall_filter.as_ref().map(|filter| filter.program.clone()).unwrap_or_default(),
        syscall_filter_flags: plan.syscall_filter.as_ref().map_or(0, |filter| filter.flags),
        ..CreateContainerRequest::default()
    })
}

/// A path with invalid UTF-8 cannot be sent; a spec's paths are valid.
fn host_socket(method: &'static str, socket: &HostSocketPlan) -> Result<HostSocket, GuestError> {
    let text = |path: &Path| match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => {
            let source = serde::ser::Error::custom(format!("{} is no UTF-8", path.display()));
            Err(GuestError::Unsendable { method, source })
        }
    };
    let token = socket.token.0.to_vec();
    Ok(match &socket.place {
        SocketPlace::Mount(source) => HostSocket { source: source.clone(), token, ..HostSocket::default() },
        SocketPlace::Directory { directory, sub_path } => HostSocket {
            directory: text(directory)?,
            sub_path: text(sub_path)?,
            token,
            ..HostSocket::default()
        },
    })
}

fn declared_volume(volume: &DeclaredVolumePlan) -> DeclaredVolume {
    DeclaredVolume { source: volume.source.clone(), path: volume.path.clone(), ..DeclaredVolume::default() }
}

fn guest_volume(volume: &GuestVolumePlan) -> GuestVolume {
    let (memory, disk) = match volume.content {
        GuestVolumeContent::Memory(memory) => (Some(memory_volume(memory)), None),
        GuestVolumeContent::Disk(disk) => (None, Some(disk_volume(disk))),
        GuestVolumeContent::Published => (None, None),
    };
    GuestVolume {
        source: volume.source.clone(),
        volume: volume.volume.clone(),
        sub_path: volume.sub_path.clone(),
        sub_access: Some(file_access(volume.sub_access)).into(),
        mapped: volume.mapped,
        memory: memory.into(),
        disk: disk.into(),
        ..GuestVolume::default()
    }
}

fn memory_volume(memory: MemoryVolume) -> agent::MemoryVolume {
    agent::MemoryVolume {
        limits: Some(volume_limits(memory.limits)).into(),
        access: Some(file_access(memory.access)).into(),
        ..agent::MemoryVolume::default()
    }
}

fn disk_volume(disk: DiskVolume) -> agent::DiskVolume {
    let DiskVolume { slot, access } = disk;
    agent::DiskVolume {
        slot: slot.into(),
        access: Some(file_access(access)).into(),
        ..agent::DiskVolume::default()
    }
}

/// Bounds of a memory volume.
pub(crate) fn volume_limits(limits: VolumeLimits) -> agent::VolumeLimits {
    let VolumeLimits { bytes, inodes } = limits;
    agent::VolumeLimits { bytes, inodes, ..agent::VolumeLimits::default() }
}

/// Access to a file.
pub(crate) fn file_access(access: FileAccess) -> agent::FileAccess {
    let FileAccess { mode, uid, gid } = access;
    agent::FileAccess { mode, uid, gid, ..agent::FileAccess::default() }
}

/// The request to start the command of `plan`, within this time.
pub(crate) fn exec(
    method: &'static str,
    container_id: &str,
    exec_id: &str,
    plan: &ExecPlan,
    within: Option<Duration>,
) -> Result<ExecRequest, GuestError> {
    // Zero stands for no bound.
    let within_ms = |within: Duration| u32::try_from(within.as_millis()).unwrap_or(u32::MAX).max(1);
    Ok(ExecRequest {
        container_id: container_id.to_owned(),
        exec_id: exec_id.to_owned(),
        process_json: json(method, &plan.process)?,
        tty: plan.tty,
        stdin: plan.stdin,
        start_within_ms: within.map_or(0, within_ms),
        ..ExecRequest::default()
    })
}

/// The request to send `signal` to `target`.
pub(crate) fn signal(container_id: &str, target: SignalTarget<'_>, signal: Signal) -> SignalRequest {
    let request = SignalRequest {
        container_id: container_id.to_owned(),
        signal: u32::from(signal.0),
        ..SignalRequest::default()
    };
    match target {
        SignalTarget::FirstProcess => request,
        SignalTarget::Container => SignalRequest { all: true, ..request },
        SignalTarget::Exec(exec_id) => SignalRequest { exec_id: exec_id.to_owned(), tree: true, ..request },
    }
}

/// A process's end. An agent of another version gives no reason; then its exit code decides.
pub(crate) fn process_exit(answer: &WaitResponse) -> ProcessExit {
    let reason = match (answer.reason.enum_value_or_default(), answer.exit_code) {
        (agent::ExitReason::EXIT_REASON_OOM_KILLED, _) => ExitReason::OomKilled,
        (agent::ExitReason::EXIT_REASON_COMPLETED, _) => ExitReason::Completed,
        (agent::ExitReason::EXIT_REASON_ERROR, _) => ExitReason::Error,
        (agent::ExitReason::EXIT_REASON_UNSPECIFIED, 0) => ExitReason::Completed,
        (agent::ExitReason::EXIT_REASON_UNSPECIFIED, _) => ExitReason::Error,
    };
    ProcessExit { exit_code: answer.exit_code, reason, exited_at_ns: answer.exited_at_ns }
}

fn json(method: &'static str, value: &impl Serialize) -> Result<Vec<u8>, GuestError> {
    serde_json::to_vec(value).map_err(|source| GuestError::Unsendable { method, source })
}
