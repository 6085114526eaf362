//! Published volumes: copied into the guest before a container mounts them, and followed from then on.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use runtime_guest::PublishedVersion;
use runtime_spec::{ContainerSpec, GuestVolumeContent, Mount};

use super::{World, container, life, pod};
use crate::volumes;

/// The directory of a volume of the pod "web".
fn directory(dir: &Path, plugin: &str, name: &str) -> PathBuf {
    dir.join("kubelet/pods/uid-web/volumes").join(format!("kubernetes.io~{plugin}")).join(name)
}

/// Publishes a version as the kubelet does.
fn publish(volume: &Path, version: &str, files: &[(&str, &str)]) {
    fs::create_dir_all(volume.join(version)).unwrap();
    for (name, content) in files {
        fs::write(volume.join(version).join(name), content).unwrap();
        fs::set_permissions(volume.join(version).join(name), Permissions::from_mode(0o640)).unwrap();
    }
    let old = fs::read_link(volume.join("..data")).ok();
    symlink(version, volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    for (name, _) in files {
        let _ = symlink(Path::new("..data").join(name), volume.join(name));
    }
    if let Some(old) = old {
        fs::remove_dir_all(volume.join(old)).unwrap();
    }
}

fn mounting(name: &str, places: &[&Path]) -> ContainerSpec {
    let mount = |(number, place): (usize, &&Path)| Mount {
        host_path: place.to_str().unwrap().to_owned(),
        container_path: format!("/mnt/{number}"),
        readonly: true,
        ..Mount::default()
    };
    ContainerSpec { mounts: places.iter().enumerate().map(mount).collect(), ..container(name) }
}

/// The versions sent to the guest, with the content of their files.
fn sent(world: &World) -> Vec<(String, Vec<(String, String)>)> {
    let files = |version: &PublishedVersion| {
        let text =
            |content: &Option<Vec<u8>>| String::from_utf8(content.clone().unwrap_or_default()).unwrap();
        version.files.iter().map(|file| (file.path.clone(), text(&file.content))).collect()
    };
    let state = world.script.state();
    state.published.iter().map(|one| (one.version.clone().unwrap_or_default(), files(one))).collect()
}

fn file(name: &str, content: &str) -> Vec<(String, String)> {
    vec![(name.into(), content.into())]
}

#[tokio::test]
async fn a_published_volume_is_in_the_guest_before_its_container() {
    let world = World::new().await;
    let secret = directory(world.dir.path(), "secret", "tls");
    publish(&secret, "..1", &[("key", "hidden")]);
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, mounting("app", &[&secret])).await.unwrap();
    assert_eq!(sent(&world), [("..1".into(), file("key", "hidden"))]);
    let version = world.script.state().published[0].clone();
    assert_eq!((version.volume.clone(), version.container_id), (volumes::name(&secret), None));
    assert_eq!(version.files[0].access.mode, 0o640);
    let (plan, _) = world.script.state().created.clone().unwrap();
    assert_eq!(plan.guest_volumes[0].content, GuestVolumeContent::Published);
    assert_eq!(plan.guest_volumes[0].volume, version.volume);
    assert!(!plan.shared_mounts);
    assert_eq!(world.script.count("shares.bind"), 0);
    let seen = world.script.state().seen.clone();
    let place = |step: &str| seen.iter().position(|seen| seen == step).unwrap();
    assert!(place("agent.publish_volume") < place("agent.create"));
    // Nothing of the bytes is on record.
    let store = fs::read(world.dir.path().join("store.redb")).unwrap();
    assert!(!store.windows(6).any(|bytes| bytes == b"hidden"));
    world.pods.remove_container(&id).await.unwrap();
}

#[tokio::test]
async fn each_version_of_the_nodes_gets_to_the_guest() {
    let world = World::new().await;
    let config = directory(world.dir.path(), "configmap", "app");
    publish(&config, "..0", &[("key", "0")]);
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.pods.create_container(&pod_id, mounting("app", &[&config])).await.unwrap();
    for number in 1..20 {
        let (version, content) = (format!("..{number}"), number.to_string());
        publish(&config, &version, &[("key", &content)]);
        world.until(|world| sent(world).last() == Some(&(version.clone(), file("key", &content)))).await;
    }
    // A second container finds the first one's files: nothing is sent again.
    let before = sent(&world).len();
    world.pods.create_container(&pod_id, mounting("second", &[&config])).await.unwrap();
    assert_eq!(sent(&world).len(), before);
}

#[test]
fn a_version_that_came_while_no_daemon_ran_is_sent_by_the_next_and_later_ones_too() {
    let (left, config) = life(None, async |world| {
        let config = directory(world.dir.path(), "configmap", "app");
        publish(&config, "..0", &[("key", "0")]);
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        world.pods.create_container(&pod_id, mounting("app", &[&config])).await.unwrap();
        config
    });
    publish(&config, "..1", &[("key", "1")]);
    life(Some(left), async |world| {
        world.until(|world| sent(world).last() == Some(&("..1".into(), file("key", "1")))).await;
        publish(&config, "..2", &[("key", "2")]);
        world.until(|world| sent(world).last() == Some(&("..2".into(), file("key", "2")))).await;
    });
}

#[tokio::test]
async fn a_guest_or_a_disk_that_hangs_keeps_the_pods_driver_from_nothing_and_gets_the_version_later() {
    for step in ["agent.publish_volume", "volumes.versions", "volumes.read"] {
        let world = World::new().await;
        let config = directory(world.dir.path(), "configmap", "app");
        publish(&config, "..0", &[("key", "0")]);
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        let id = world.pods.create_container(&pod_id, mounting("app", &[&config])).await.unwrap();
        let before = world.script.count(step);
        world.script.hang(step);
        publish(&config, "..1", &[("key", "1")]);
        world.until(|world| world.script.count(step) > before).await;
        world.pods.start_container(&id).await.unwrap();
        world.pods.create_container(&pod_id, container("other")).await.unwrap();
        world.script.repair();
        world.until(|world| sent(world).last() == Some(&("..1".into(), file("key", "1")))).await;
        world.pods.remove(&pod_id).await.unwrap();
    }
}

#[tokio::test]
async fn a_part_of_a_volume_is_copied_once_for_its_container() {
    let world = World::new().await;
    let config = directory(world.dir.path(), "configmap", "app");
    publish(&config, "..0", &[("key", "0")]);
    let part = world.dir.path().join("kubelet/pods/uid-web/volume-subpaths/app/web/0");
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    // The kubelet binds the file here.
    fs::write(&part, "0").unwrap();
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, mounting("web", &[&part])).await.unwrap();
    let version = world.script.state().published[0].clone();
    assert_eq!((version.version, version.container_id), (None, Some(id.clone())));
    assert_eq!(sent(&world), [(String::new(), file("file", "0"))]);
    let (plan, _) = world.script.state().created.clone().unwrap();
    assert_eq!(plan.guest_volumes[0].sub_path, "file");
    assert_eq!(plan.guest_volumes[0].volume, version.volume);
    assert_eq!(world.script.count("volumes.watch"), 0);
    // Another container has a copy of its own.
    let other = ContainerSpec { attempt: 1, ..mounting("web", &[&part]) };
    world.pods.create_container(&pod_id, other).await.unwrap();
    assert_ne!(world.script.state().published[1].volume, version.volume);
}

#[tokio::test]
async fn what_is_not_copied_is_bound_as_before() {
    let world = World::new().await;
    let at = |plugin: &str, name: &str| directory(world.dir.path(), plugin, name);
    let large = at("configmap", "large");
    publish(&large, "..0", &[("key", &"x".repeat(9 << 20))]);
    let by_hand = at("secret", "by-hand");
    publish(&by_hand, "..0", &[("key", "0")]);
    fs::write(by_hand.join("extra"), "x").unwrap();
    let odd = at("projected", "odd");
    publish(&odd, "..0", &[("key", "0")]);
    let _socket = std::os::unix::net::UnixListener::bind(odd.join("..0/socket")).unwrap();
    let writable = at("configmap", "writable");
    publish(&writable, "..0", &[("key", "0")]);
    let other = world.dir.path().join("kubelet/pods/uid-other/volumes/kubernetes.io~secret/x");
    publish(&other, "..0", &[("key", "0")]);
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let mut spec = mounting("app", &[&large, &by_hand, &odd, &writable, &other]);
    spec.mounts[3].readonly = false;
    let id = world.pods.create_container(&pod_id, spec).await.unwrap();
    assert_eq!(sent(&world), []);
    let bound = world.script.state().binds[runtime_spec::share_name(&id)].len();
    assert_eq!(bound, 5);
}

#[tokio::test]
async fn a_pods_copies_are_bounded_together() {
    let world = World::new().await;
    let volumes: Vec<PathBuf> =
        (0..4).map(|number| directory(world.dir.path(), "configmap", &format!("c{number}"))).collect();
    for volume in &volumes {
        publish(volume, "..0", &[("key", &"x".repeat(6 << 20))]);
    }
    let places: Vec<&Path> = volumes.iter().map(PathBuf::as_path).collect();
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.pods.create_container(&pod_id, mounting("a", &places[..1])).await.unwrap();
    // A version already in the guest counts once.
    let id = world.pods.create_container(&pod_id, mounting("b", &places)).await.unwrap();
    let bound: Vec<_> =
        world.script.state().binds[runtime_spec::share_name(&id)].iter().map(|(number, _)| *number).collect();
    assert_eq!(bound, [2, 3]);
}

#[tokio::test]
async fn a_volume_that_is_in_the_guest_needs_no_room_for_the_next_container() {
    let world = World::new().await;
    let volumes = ["a", "b"].map(|name| directory(world.dir.path(), "configmap", name));
    for volume in &volumes {
        publish(volume, "..0", &[("key", &"x".repeat(6 << 20))]);
    }
    let places: Vec<&Path> = volumes.iter().map(PathBuf::as_path).collect();
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let first = world.pods.create_container(&pod_id, mounting("app", &places)).await.unwrap();
    // The kubelet creates the next attempt before it removes the last one.
    let again = ContainerSpec { attempt: 1, ..mounting("app", &places) };
    world.pods.create_container(&pod_id, again).await.unwrap();
    world.pods.create_container(&pod_id, mounting("second", &places)).await.unwrap();
    let (plan, _) = world.script.state().created.clone().unwrap();
    assert_eq!(plan.guest_volumes.len(), 2);
    assert_eq!(world.script.count("shares.bind"), 0);
    // A third volume is one too many.
    let third = directory(world.dir.path(), "configmap", "c");
    publish(&third, "..0", &[("key", &"x".repeat(6 << 20))]);
    world.pods.remove_container(&first).await.unwrap();
    world.pods.create_container(&pod_id, mounting("third", &[&third])).await.unwrap();
    assert_eq!(world.script.count("shares.bind"), 1);
}

#[tokio::test]
async fn a_version_that_cannot_be_taken_up_keeps_the_old_one_and_no_container_from_being_made() {
    let world = World::new().await;
    let at = |name: &str| directory(world.dir.path(), "configmap", name);
    let (sound, grown) = (at("sound"), at("grown"));
    publish(&sound, "..0", &[("key", "0")]);
    publish(&grown, "..0", &[("key", "0")]);
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.pods.create_container(&pod_id, mounting("a", &[&sound, &grown])).await.unwrap();
    let reads = world.script.count("volumes.read");
    publish(&grown, "..1", &[("key", &"x".repeat(9 << 20))]);
    world.until(|world| world.script.count("volumes.read") > reads).await;
    publish(&sound, "..1", &[("key", "1")]);
    world.until(|world| sent(world).last() == Some(&("..1".into(), file("key", "1")))).await;
    // The new container reaches the large version on the node.
    let id = world.pods.create_container(&pod_id, mounting("b", &[&sound, &grown])).await.unwrap();
    assert_eq!(world.script.state().binds[runtime_spec::share_name(&id)].len(), 1);
    publish(&grown, "..2", &[("key", "2")]);
    world.until(|world| sent(world).last() == Some(&("..2".into(), file("key", "2")))).await;
}

#[tokio::test]
async fn a_volume_that_cannot_be_sent_leaves_no_container() {
    let world = World::new().await;
    let secret = directory(world.dir.path(), "secret", "tls");
    publish(&secret, "..1", &[("key", "hidden")]);
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.script.fail("agent.publish_volume");
    let error = world.pods.create_container(&pod_id, mounting("a", &[&secret])).await.unwrap_err();
    assert!(error.chain().contains("volume"), "{}", error.chain());
    assert!(!error.chain().contains("hidden"));
    assert_eq!(world.pods.containers().len(), 0);
    assert_eq!(world.script.count("agent.remove"), 1, "what was sent for the container goes");
    world.script.repair();
    world.pods.create_container(&pod_id, mounting("a", &[&secret])).await.unwrap();
}
