//! Block devices of the host in containers: plugged with their first, unplugged with their last.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use runtime_spec::{ContainerSpec, Device};

use super::{Fault, Script, World, container, pod};
use crate::PodErrorKind;
use crate::backend::{BackendError, DiskError, Disks, HostDisk};

/// `/dev/1`, `/dev/2` and so on exist; a name beginning with c is a character device.
#[derive(Debug)]
pub(crate) struct FakeDisks(pub(crate) Arc<Script>);

#[async_trait]
impl Disks for FakeDisks {
    async fn open(&self, path: PathBuf, writable: bool) -> Result<HostDisk, BackendError> {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with('c') {
            return Err(DiskError::Character(path).into());
        }
        let disk = HostDisk { file: std::fs::File::open("/dev/null")?, number: name.parse().unwrap() };
        let key = HostDisk::key(disk.number, writable);
        self.0.state().opened.insert(disk.file.as_raw_fd(), key);
        Ok(disk)
    }
}

fn with(name: &str, devices: &[(&str, &str)]) -> ContainerSpec {
    let device = |&(host_path, permissions): &(&str, &str)| Device {
        host_path: host_path.into(),
        container_path: "/dev/xvda".into(),
        permissions: permissions.into(),
        ..Device::default()
    };
    ContainerSpec { devices: devices.iter().map(device).collect(), ..container(name) }
}

#[tokio::test]
async fn a_disk_is_plugged_with_its_first_container_and_unplugged_with_its_last() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let first = world.pods.create_container(&pod_id, with("a", &[("/dev/1", "rw"), ("/dev/2", "rm")])).await;
    let first = first.unwrap();
    let (plan, slots) = world.script.state().created.clone().unwrap();
    assert_eq!(slots.block_devices, [12, 13]);
    let devices: Vec<_> =
        plan.block_devices.iter().map(|one| (one.path.as_str(), one.permissions.as_str())).collect();
    assert_eq!(devices, [("/dev/xvda", "rw"), ("/dev/xvda", "rm")]);
    assert_eq!(world.script.count("vm.plug_disk"), 1);
    assert_eq!(world.script.count("vm.plug_disk_ro"), 1);
    let second = world.pods.create_container(&pod_id, with("b", &[("/dev/1", "rwm")])).await.unwrap();
    assert_eq!(world.script.count("vm.plug_disk"), 1);
    world.pods.remove_container(&first).await.unwrap();
    assert_eq!(world.script.count("vm.unplug"), 1);
    world.pods.remove_container(&second).await.unwrap();
    assert_eq!(world.script.count("vm.unplug"), 2);
    world.pods.create_container(&pod_id, with("c", &[("/dev/1", "r")])).await.unwrap();
    assert_eq!(world.script.count("vm.plug_disk_ro"), 2);
}

#[tokio::test]
async fn a_container_that_fails_leaves_no_disk_behind() {
    for (step, unplugged) in [("vm.plug_disk_ro", 1), ("agent.create", 2)] {
        let world = World::new().await;
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        world.script.fail(step);
        let spec = with("a", &[("/dev/1", "rw"), ("/dev/2", "r")]);
        let error = world.pods.create_container(&pod_id, spec.clone()).await.unwrap_err();
        assert!(error.chain().contains(step), "{}", error.chain());
        assert_eq!(world.script.count("vm.unplug"), unplugged);
        world.script.repair();
        world.pods.create_container(&pod_id, spec).await.unwrap();
    }
}

#[tokio::test]
async fn a_disk_that_was_unplugged_unheard_keeps_no_other_out() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let first = world.pods.create_container(&pod_id, with("a", &[("/dev/1", "rw")])).await.unwrap();
    // The points before it: two commits, and the agent's answer.
    world.script.plan(Fault::Lose, 3);
    world.pods.remove_container(&first).await.unwrap();
    assert_eq!(world.script.end_plan(), Some((Fault::Lose, "vm.unplug, answered".to_owned())));
    world.pods.create_container(&pod_id, with("b", &[("/dev/2", "rw")])).await.unwrap();
    assert_eq!(world.script.state().violations, Vec::<String>::new());
}

#[tokio::test]
async fn what_cannot_be_a_disk_of_the_pod_is_refused_by_name() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let error = world.pods.create_container(&pod_id, with("a", &[("/dev/c1", "rw")])).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::InvalidArgument);
    assert!(error.chain().contains("/dev/c1: a character device"), "{}", error.chain());
    world.pods.create_container(&pod_id, with("reads", &[("/dev/1", "r")])).await.unwrap();
    let error = world.pods.create_container(&pod_id, with("writes", &[("/dev/1", "rw")])).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::FailedPrecondition);
    assert!(error.to_string().contains("/dev/1 is in another container"), "{error}");
    let four = [("/dev/2", "r"), ("/dev/3", "r"), ("/dev/4", "r"), ("/dev/5", "r")];
    let id = world.pods.create_container(&pod_id, with("four", &four)).await.unwrap();
    let error = world.pods.create_container(&pod_id, with("more", &[("/dev/6", "r")])).await.unwrap_err();
    assert!(error.to_string().contains("5 block devices"), "{error}");
    world.pods.remove_container(&id).await.unwrap();
    world.pods.create_container(&pod_id, with("more", &[("/dev/6", "r")])).await.unwrap();
}
