//! Volumes on disk: on disks of the VM's where they can be, on the node where they must.

use std::fs;
use std::path::{Path, PathBuf};

use proto_vmm::Slot;
use runtime_spec::{ContainerSpec, GuestVolumeContent, Mount};

use super::{Script, World, container, life, pod};
use crate::PodErrorKind;
use crate::installed::InstalledFile;
use crate::volumes::disk::IMAGE;

/// Makes the directory of a volume of the pod "web", as the kubelet does.
fn make(dir: &Path, name: &str) -> PathBuf {
    let directory = dir.join("kubelet/pods/uid-web/volumes/kubernetes.io~empty-dir").join(name);
    fs::create_dir_all(&directory).unwrap();
    directory
}

fn mounting(name: &str, places: &[&Path]) -> ContainerSpec {
    let mount = |(number, place): (usize, &&Path)| Mount {
        host_path: place.to_str().unwrap().to_owned(),
        container_path: format!("/mnt/{number}"),
        ..Mount::default()
    };
    ContainerSpec { mounts: places.iter().enumerate().map(mount).collect(), ..container(name) }
}

/// The slots of the last container's volumes on disks of the VM's, and whether it reaches any on the node.
fn created(world: &World) -> (Vec<u8>, bool) {
    let (plan, _) = world.script.state().created.clone().unwrap();
    let slot = |content| match content {
        GuestVolumeContent::Disk(disk) => disk.slot,
        content => panic!("{content:?}"),
    };
    (plan.guest_volumes.iter().map(|volume| slot(volume.content)).collect(), plan.shared_mounts)
}

fn slots(count: usize) -> Vec<u8> {
    Slot::volumes().take(count).map(Slot::number).collect()
}

#[tokio::test]
async fn an_empty_volume_is_a_disk_of_the_vms_for_all_containers_of_the_pod() {
    let world = World::new().await;
    let (a, b) = (make(world.dir.path(), "a"), make(world.dir.path(), "b"));
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, mounting("one", &[&a, &b])).await.unwrap();
    assert_eq!(created(&world), (slots(2), false));
    assert!(a.join(IMAGE).exists() && b.join(IMAGE).exists());
    world.pods.create_container(&pod_id, mounting("two", &[&b])).await.unwrap();
    assert_eq!(created(&world), (slots(2)[1..].to_vec(), false));
    assert_eq!(world.script.count("vm.plug_disk"), 2);
    // A volume stays where it is when its container goes.
    world.pods.remove_container(&id).await.unwrap();
    world.pods.create_container(&pod_id, mounting("three", &[&a])).await.unwrap();
    assert_eq!(created(&world), (slots(1), false));
    assert_eq!((world.script.count("vm.plug_disk"), world.script.count("vm.unplug")), (2, 0));
}

#[tokio::test]
async fn a_volume_with_files_or_without_a_slot_stays_on_the_node() {
    let world = World::new().await;
    let full = make(world.dir.path(), "full");
    fs::write(full.join("file"), "").unwrap();
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.pods.create_container(&pod_id, mounting("one", &[&full])).await.unwrap();
    assert_eq!(created(&world), (vec![], true));
    let all = Slot::volumes().count();
    let many: Vec<PathBuf> = (0..=all).map(|number| make(world.dir.path(), &format!("v{number}"))).collect();
    let places: Vec<&Path> = many.iter().map(PathBuf::as_path).collect();
    world.pods.create_container(&pod_id, mounting("two", &places)).await.unwrap();
    assert_eq!(created(&world), (slots(all), true));
    assert!(!many[all].join(IMAGE).exists());
    // Emptied, it stays there: other containers have it mounted.
    fs::remove_file(full.join("file")).unwrap();
    world.pods.create_container(&pod_id, mounting("three", &[&full])).await.unwrap();
    assert_eq!(created(&world), (vec![], true));
}

#[tokio::test]
async fn a_pod_whose_volumes_are_shared_gets_no_new_disk_and_the_old_one_if_its_vm_can() {
    let set: [fn(&Script); 3] = [
        |script| script.state().protocol = Some(2),
        |script| script.state().without_volume_slots = true,
        // The volume's files are nowhere else.
        |script| script.state().share_all_volumes = true,
    ];
    for (set, can) in set.into_iter().zip([false, false, true]) {
        let ((dir, script), ()) = tokio::task::spawn_blocking(|| life(None, async |_| ())).await.unwrap();
        set(&script);
        let world = World::open(dir, script).await;
        let (new, used) = (make(world.dir.path(), "new"), make(world.dir.path(), "used"));
        fs::write(used.join(IMAGE), vec![0; 4096]).unwrap();
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        world.pods.create_container(&pod_id, mounting("a", &[&new])).await.unwrap();
        assert_eq!(created(&world), (vec![], true));
        let created = world.pods.create_container(&pod_id, mounting("b", &[&used])).await;
        assert_eq!(created.is_ok(), can);
        let Err(error) = created else { continue };
        assert_eq!(error.kind(), PodErrorKind::FailedPrecondition);
        assert!(error.to_string().contains("on a disk of a VM's: the pod was started without"), "{error}");
    }
}

#[tokio::test]
async fn a_disk_that_another_vm_has_is_refused_and_leaves_nothing_of_the_container() {
    let world = World::new().await;
    let volume = make(world.dir.path(), "a");
    let template = InstalledFile::from(world.dir.path().join("volume")).into();
    let other = crate::volumes::disk::open(&volume, &template).unwrap();
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let error = world.pods.create_container(&pod_id, mounting("one", &[&volume])).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::FailedPrecondition);
    assert!(error.chain().contains("in use by another VM"), "{}", error.chain());
    assert_eq!(world.script.state().binds.len(), 0);
    drop(other);
    world.pods.create_container(&pod_id, mounting("one", &[&volume])).await.unwrap();
    assert_eq!(created(&world), (slots(1), false));
}

#[test]
fn a_volume_keeps_its_slot_over_the_daemons_death_and_is_not_plugged_twice() {
    let mut places = Vec::new();
    let (left, pod_id) = life(None, async |world| {
        places = ["a", "b"].map(|name| make(world.dir.path(), name)).to_vec();
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        world.pods.create_container(&pod_id, mounting("one", &[&places[0]])).await.unwrap();
        pod_id
    });
    let before = left.1.count("vm.plug_disk");
    life(Some(left), async |world| {
        world.pods.create_container(&pod_id, mounting("two", &[&places[1], &places[0]])).await.unwrap();
        let all = slots(2);
        assert_eq!(created(world), (vec![all[1], all[0]], false));
        assert_eq!(world.script.count("vm.plug_disk"), before + 1);
    });
}

#[tokio::test]
async fn a_plug_that_failed_is_made_up_for_by_the_next_container() {
    let world = World::new().await;
    let volume = make(world.dir.path(), "a");
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.script.fail("vm.plug_disk");
    world.pods.create_container(&pod_id, mounting("one", &[&volume])).await.unwrap_err();
    world.script.repair();
    world.pods.create_container(&pod_id, mounting("one", &[&volume])).await.unwrap();
    assert_eq!(created(&world), (slots(1), false));
}

#[tokio::test]
async fn a_volume_that_the_node_has_no_more_is_refused() {
    let world = World::new().await;
    let volume = make(world.dir.path(), "a");
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.pods.create_container(&pod_id, mounting("one", &[&volume])).await.unwrap();
    fs::remove_dir_all(&volume).unwrap();
    let error = world.pods.create_container(&pod_id, mounting("two", &[&volume])).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::FailedPrecondition);
    assert!(error.to_string().contains("the node has the volume no more"), "{error}");
}
