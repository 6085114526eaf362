//! Volumes kept by the guest itself, as mounts of a container. The volumes outlive the container
//! ([`crate::memory_volumes`], [`crate::disk_volumes`], [`crate::published_volumes`]), except published
//! volumes of a single container.
//!
//! Other containers of the pod may change a volume while a part of it is looked up. A part is therefore
//! opened once and bound by its descriptor.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;
use proto_agent::agent::GuestVolume;
use proto_agent::guest_path;

use crate::containers::{Container, ContainerError};
use crate::lifecycle::build_mount::BuildMount;
use crate::pod::Pod;

/// The step named in errors.
const STEP: &str = "mount a volume";

/// A volume's mount while its container is built, and its mount point, an empty file or directory. The mount
/// point is outside of the container's own directory, because that directory is removed with all its content.
#[derive(Debug)]
pub(super) struct VolumeMount {
    mount: Option<BuildMount>,
    place: PathBuf,
}

impl Drop for VolumeMount {
    fn drop(&mut self) {
        drop(self.mount.take());
        // Not recursive: if the volume is still mounted, this fails and removes nothing.
        if let Err(error) = fs::remove_file(&self.place).or_else(|_| fs::remove_dir(&self.place)) {
            tracing::warn!(%error, path = %self.place.display(), "the place of a volume stays");
        }
    }
}

/// Makes missing volumes and sets the sources of the specification's mounts to them. The mounts must live
/// until the container is built.
pub(super) async fn mount(
    pod: &Pod,
    container: &Container,
    volumes: &[GuestVolume],
    spec: &mut Spec,
) -> Result<Vec<VolumeMount>, ContainerError> {
    let mut mounts = Vec::new();
    for (volume, number) in volumes.iter().zip(0..) {
        let opened = open(pod, volume).await?;
        let place = place(container, number);
        let mount = mount_at(pod, volume, &opened, &place).map_err(container.io(STEP))?;
        for mount in spec.mounts_mut().iter_mut().flatten() {
            if mount.source().as_deref() == Some(Path::new(&volume.source)) {
                mount.set_source(Some(place.clone()));
            }
        }
        mounts.push(VolumeMount { mount: Some(mount), place });
    }
    Ok(mounts)
}

/// Opens the requested part of the volume.
async fn open(pod: &Pod, volume: &GuestVolume) -> Result<OwnedFd, ContainerError> {
    let (name, sub_path) = (&volume.volume, &volume.sub_path);
    if let Some(disk) = volume.disk.as_ref() {
        return Ok(pod.disk_volumes.open(name, disk, sub_path, &volume.sub_access).await?);
    }
    match volume.memory.as_ref() {
        Some(memory) => Ok(pod.memory_volumes.open(name, memory, sub_path, &volume.sub_access)?),
        None => Ok(pod.published_volumes.open(name, sub_path)?),
    }
}

fn place(container: &Container, number: usize) -> PathBuf {
    Path::new(guest_path::GUEST_VOLUMES).join(format!("{}-{number}", container.id()))
}

fn mount_at(pod: &Pod, volume: &GuestVolume, opened: &OwnedFd, place: &Path) -> std::io::Result<BuildMount> {
    fs::create_dir_all(guest_path::GUEST_VOLUMES)?;
    let namespace = if volume.mapped { pod.user_namespace.get() } else { None };
    BuildMount::opened(opened, place.to_owned(), namespace)
}
