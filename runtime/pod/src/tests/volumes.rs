//! Volumes kept by the guest itself: their places, the same files for all containers of a pod, and updates
//! from the node's volumes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use runtime_blocking::Pool;
use runtime_spec::{
    ContainerSpec, FileAccess, GuestVolumeContent, KubeletPath, MemoryVolume, Mount, VolumeLimits,
    VolumePlugin, share_name,
};
use tokio::sync::{Notify, watch};

use super::{Script, World, container, life, pod};
use crate::PodErrorKind;
use crate::backend::{BackendError, FoundVolume, KubeletVolumes, MemoryFound, Volumes};
use crate::installed::InstalledFile;
use crate::volumes;
use crate::volumes::directory_changes::Watch;
use crate::volumes::mount_changes::MountChanges;
use crate::volumes::published::Snapshot;

/// The kubelet's directories, as the script has them.
/// Published volumes are files of the test's.
#[derive(Debug)]
pub(crate) struct FakeVolumes {
    script: Arc<Script>,
    files: KubeletVolumes,
}

impl FakeVolumes {
    pub(crate) fn new(script: Arc<Script>, template: PathBuf) -> FakeVolumes {
        let (mounts, directories) = (MountChanges::default(), Arc::default());
        let paths = Pool::new("volumes", 4);
        FakeVolumes {
            script,
            files: KubeletVolumes {
                paths,
                mounts,
                directories,
                template: InstalledFile::from(template).into(),
            },
        }
    }
}

#[async_trait]
impl Volumes for FakeVolumes {
    async fn find(
        &self,
        paths: Vec<(usize, KubeletPath)>,
    ) -> Result<Vec<(usize, FoundVolume)>, BackendError> {
        self.script.step("volumes.find").await?;
        let find = |(number, path): &(usize, KubeletPath)| {
            let state = self.script.state();
            let found = state.memory_volumes.get(&path.directory(VolumePlugin::EmptyDir)?)?;
            Some((*number, FoundVolume::Memory(found.clone())))
        };
        let mut found: Vec<_> = paths.iter().filter_map(find).collect();
        found.extend(self.files.find(paths).await?);
        Ok(found)
    }

    async fn find_disks(
        &self,
        paths: Vec<(usize, KubeletPath)>,
    ) -> Result<Vec<(usize, FoundVolume)>, BackendError> {
        self.script.step("volumes.find_disks").await?;
        self.files.find_disks(paths).await
    }

    async fn limits(&self, directories: Vec<PathBuf>) -> Result<Vec<(PathBuf, VolumeLimits)>, BackendError> {
        self.script.step("volumes.limits").await?;
        let state = self.script.state();
        let find = |directory: PathBuf| {
            let found = state.memory_volumes.get(&directory)?;
            Some((directory, found.volume.limits))
        };
        Ok(directories.into_iter().filter_map(find).collect())
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.script.state().volumes_changed.subscribe()
    }

    async fn versions(&self, directories: Vec<PathBuf>) -> Result<Vec<(PathBuf, String)>, BackendError> {
        self.script.step("volumes.versions").await?;
        self.files.versions(directories).await
    }

    async fn open_disk(&self, directory: PathBuf) -> Result<File, BackendError> {
        self.script.step("volumes.open_disk").await?;
        self.files.open_disk(directory).await
    }

    async fn read(&self, directory: PathBuf) -> Result<Snapshot, BackendError> {
        self.script.step("volumes.read").await?;
        self.files.read(directory).await
    }

    async fn watch(&self, directory: PathBuf, follower: Arc<Notify>) -> Result<Watch, BackendError> {
        self.script.step("volumes.watch").await?;
        self.files.watch(directory, follower).await
    }
}

/// The directory of a volume of the pod "web".
fn directory(name: &str) -> PathBuf {
    format!("/k/pods/uid-web/volumes/kubernetes.io~empty-dir/{name}").into()
}

fn limits(bytes: u64) -> VolumeLimits {
    VolumeLimits { bytes, inodes: 100 }
}

/// Has the node mount a volume in memory, or mount it with another size.
fn mount(script: &Script, name: &str, bytes: u64) {
    let access = FileAccess { mode: 0o2777, uid: 0, gid: 2000 };
    let volume = MemoryVolume { limits: limits(bytes), access };
    let directory = directory(name);
    let found = MemoryFound { directory: directory.clone(), volume, holds_files: false, part: None };
    let mut state = script.state();
    state.memory_volumes.insert(directory, found);
    state.volumes_changed.send_replace(());
}

fn fill(script: &Script, name: &str) {
    script.state().memory_volumes.get_mut(&directory(name)).unwrap().holds_files = true;
}

fn mounting(name: &str, volumes: &[&str]) -> ContainerSpec {
    let mount = |volume: &&str| Mount {
        host_path: directory(volume).to_str().unwrap().to_owned(),
        container_path: format!("/{volume}"),
        ..Mount::default()
    };
    ContainerSpec { mounts: volumes.iter().map(mount).collect(), ..container(name) }
}

/// The names of the volumes kept by the guest for the last container, and whether the container also mounts
/// volumes of the node.
fn created(world: &World) -> (Vec<String>, bool) {
    let (plan, _) = world.script.state().created.clone().unwrap();
    (plan.guest_volumes.into_iter().map(|volume| volume.volume).collect(), plan.shared_mounts)
}

fn resized(world: &World) -> Vec<u64> {
    world.script.state().resized_volumes.iter().map(|(_, limits)| limits.bytes).collect()
}

#[tokio::test]
async fn a_volume_in_memory_is_the_guests_own_and_other_mounts_are_bound() {
    let world = World::new().await;
    mount(&world.script, "cache", 4096);
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let mut spec = mounting("app", &["cache", "disk", "cache"]);
    spec.mounts[2].readonly = true;
    spec.mounts[2].container_path = "/again".into();
    let id = world.pods.create_container(&pod_id, spec).await.unwrap();
    let (plan, _) = world.script.state().created.clone().unwrap();
    assert!(plan.shared_mounts);
    let name = volumes::name(&directory("cache"));
    let numbers: Vec<_> = plan.guest_volumes.iter().map(|one| (one.mount, one.volume.clone())).collect();
    assert_eq!(numbers, [(0, name.clone()), (2, name.clone())]);
    let GuestVolumeContent::Memory(memory) = plan.guest_volumes[0].content else { panic!() };
    assert_eq!(memory.limits, limits(4096));
    assert_eq!(memory.access, FileAccess { mode: 0o2777, uid: 0, gid: 2000 });
    let mounts = plan.oci.mounts().clone().unwrap();
    let at = |path: &str| mounts.iter().find(|mount| mount.destination() == Path::new(path)).unwrap();
    for (path, number, access) in [("/cache", 0, "rw"), ("/again", 2, "ro")] {
        let source = format!("{}/{number}", proto_agent::guest_path::GUEST_VOLUMES);
        assert_eq!(at(path).source().as_deref(), Some(Path::new(&source)));
        assert!(at(path).options().as_ref().unwrap().contains(&access.to_owned()), "{path}");
    }
    let bound: Vec<_> =
        world.script.state().binds[share_name(&id)].iter().map(|(number, _)| *number).collect();
    assert_eq!(bound, [1]);
    world.pods.remove_container(&id).await.unwrap();
    assert_eq!(world.script.state().binds.len(), 0);
    // A container without other mounts has no access to the node.
    world.pods.create_container(&pod_id, mounting("next", &["cache"])).await.unwrap();
    assert_eq!(created(&world), (vec![name], false));
}

#[tokio::test]
async fn a_volume_that_holds_files_stays_on_the_node_for_all_containers_of_the_pod() {
    let world = World::new().await;
    mount(&world.script, "cache", 4096);
    fill(&world.script, "cache");
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.pods.create_container(&pod_id, mounting("a", &["cache"])).await.unwrap();
    assert_eq!(created(&world), (vec![], true));
    mount(&world.script, "cache", 4096);
    world.pods.create_container(&pod_id, mounting("b", &["cache"])).await.unwrap();
    assert_eq!(created(&world), (vec![], true));
}

#[tokio::test]
async fn a_volume_of_the_guest_stays_there_whatever_the_node_writes_or_takes_away() {
    let world = World::new().await;
    mount(&world.script, "cache", 4096);
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, mounting("a", &["cache"])).await.unwrap();
    world.pods.remove_container(&id).await.unwrap();
    fill(&world.script, "cache");
    world.pods.create_container(&pod_id, mounting("b", &["cache"])).await.unwrap();
    assert_eq!(created(&world).0.len(), 1);
    world.script.state().memory_volumes.clear();
    let error = world.pods.create_container(&pod_id, mounting("c", &["cache"])).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::FailedPrecondition);
    assert!(error.to_string().contains("/k/pods/uid-web/volumes/"), "{error}");
}

#[test]
fn the_place_of_a_volume_outlives_the_daemon_and_a_change_of_the_configuration() {
    let (left, pod_id) = life(None, async |world| {
        mount(&world.script, "cache", 4096);
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        world.pods.create_container(&pod_id, mounting("a", &["cache"])).await.unwrap();
        world.script.state().share_all_volumes = true;
        pod_id
    });
    fill(&left.1, "cache");
    life(Some(left), async |world| {
        world.pods.create_container(&pod_id, mounting("b", &["cache"])).await.unwrap();
        assert_eq!(created(world), (vec![volumes::name(&directory("cache"))], false));
    });
}

#[tokio::test]
async fn guests_of_the_release_before_and_handlers_that_say_so_share_all_volumes() {
    let set: [fn(&Script); 2] =
        [|script| script.state().protocol = Some(1), |script| script.state().share_all_volumes = true];
    for set in set {
        let ((dir, script), ()) = tokio::task::spawn_blocking(|| life(None, async |_| ())).await.unwrap();
        set(&script);
        let world = World::open(dir, script).await;
        mount(&world.script, "cache", 4096);
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        world.pods.create_container(&pod_id, mounting("a", &["cache"])).await.unwrap();
        assert_eq!(created(&world), (vec![], true));
        assert_eq!(world.script.count("volumes.find"), 0);
    }
}

#[tokio::test]
async fn a_volume_of_another_pod_is_bound() {
    let world = World::new().await;
    mount(&world.script, "cache", 4096);
    let pod_id = world.pods.run(pod("other")).await.unwrap();
    world.pods.create_container(&pod_id, mounting("a", &["cache"])).await.unwrap();
    assert_eq!(created(&world), (vec![], true));
}

#[tokio::test]
async fn the_guests_volume_gets_the_size_that_the_nodes_gets() {
    let world = World::new().await;
    mount(&world.script, "cache", 4096);
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.pods.create_container(&pod_id, mounting("a", &["cache"])).await.unwrap();
    world.until(|world| resized(world).last() == Some(&4096)).await;
    // An unrelated mount changes nothing.
    let calls = resized(&world).len();
    let looks = world.script.count("volumes.limits");
    mount(&world.script, "other", 1);
    world.until(|world| world.script.count("volumes.limits") > looks).await;
    assert_eq!(resized(&world).len(), calls);
    mount(&world.script, "cache", 8192);
    world.until(|world| resized(world).last() == Some(&8192)).await;
    let (name, _) = world.script.state().resized_volumes.last().cloned().unwrap();
    assert_eq!(name, volumes::name(&directory("cache")));
}

#[test]
fn a_size_that_changed_while_no_daemon_ran_is_followed_by_the_next() {
    let (left, _) = life(None, async |world| {
        mount(&world.script, "cache", 4096);
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        world.pods.create_container(&pod_id, mounting("a", &["cache"])).await.unwrap();
    });
    mount(&left.1, "cache", 8192);
    life(Some(left), async |world| {
        world.until(|world| resized(world).last() == Some(&8192)).await;
    });
}

#[tokio::test]
async fn a_guest_that_hangs_keeps_no_call_waiting_and_gets_the_size_once_it_answers() {
    let world = World::new().await;
    mount(&world.script, "cache", 4096);
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.script.hang("agent.resize_volume");
    let id = world.pods.create_container(&pod_id, mounting("a", &["cache"])).await.unwrap();
    world.until(|world| world.script.count("agent.resize_volume") > 0).await;
    world.pods.start_container(&id).await.unwrap();
    world.script.repair();
    world.script.fail("agent.resize_volume");
    mount(&world.script, "cache", 8192);
    let before = world.script.count("agent.resize_volume");
    world.until(|world| world.script.count("agent.resize_volume") > before + 1).await;
    world.script.repair();
    world.until(|world| resized(world).last() == Some(&8192)).await;
}

#[tokio::test]
async fn a_look_at_volumes_that_fails_leaves_nothing_of_the_container() {
    let world = World::new().await;
    mount(&world.script, "cache", 4096);
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.script.fail("volumes.find");
    let error = world.pods.create_container(&pod_id, mounting("a", &["cache"])).await.unwrap_err();
    assert!(error.chain().contains("mounts"), "{}", error.chain());
    assert_eq!(world.pods.containers().len(), 0);
    world.script.repair();
    world.pods.create_container(&pod_id, mounting("a", &["cache"])).await.unwrap();
}
