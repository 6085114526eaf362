//! Volumes kept in a guest, laid out on the node like a kubelet's.

use std::fs;

use proto_cri::v1;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::traces::Traces;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};
use tests_registry::Layer;

use crate::programs::{behind, call, elf, unless_negative};

const MIB: u64 = 1 << 20;

fn sleeper(name: &str, image: &str, mounts: Vec<v1::Mount>) -> v1::ContainerConfig {
    v1::ContainerConfig { mounts, ..spec::container(name, image, &["sleep", "3600"]) }
}

#[tokio::test]
async fn a_memory_volume_is_the_guests_own_tmpfs_with_its_limit() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("memory", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let directory = volumes.memory("cache", MIB, 2000).unwrap();
    let pod = client.run_pod(&config).await.unwrap();
    let read_only = v1::Mount { readonly: true, ..mounted(&directory, "/again") };
    let mounts = vec![mounted(&directory, "/cache"), read_only];
    let container = client.run(&pod, sleeper("main", &image, mounts.clone())).await.unwrap();
    assert_eq!(client.status(&container).await.unwrap().mounts, mounts);

    let kind = "while read a at kind rest; do [ $at = /cache ] && echo $kind; done </proc/mounts";
    assert_eq!(client.sh(&container, kind).await.unwrap(), "tmpfs\n");
    assert_eq!(client.sh(&container, "stat -c '%a %u:%g' /cache").await.unwrap(), "2777 0:2000\n");
    assert_eq!(client.sh(&container, "stat -f -c '%b %S' /cache").await.unwrap(), "256 4096\n");
    let full = "head -c 2097152 /dev/zero >/cache/big 2>/dev/null || echo full; stat -c %s /cache/big; rm /cache/big";
    assert_eq!(client.sh(&container, full).await.unwrap(), "full\n1048576\n");
    let seen = "echo here >/cache/file; cat /again/file; echo x 2>/dev/null >/again/file || echo no";
    assert_eq!(client.sh(&container, seen).await.unwrap(), "here\nno\n");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "nothing of it is on the node");

    volumes.resize("cache", 2 * MIB).unwrap();
    client.prints(&container, "stat -f -c %b /cache", "512\n").await.unwrap();
    assert_eq!(client.sh(&container, "cat /cache/file").await.unwrap(), "here\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_memory_volume_as_large_as_the_node_is_full_before_the_guests_memory_is() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("memory", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    // As a kubelet does it for a pod without limits.
    let directory = volumes.memory("cache", 64 << 30, 0).unwrap();
    let pod = client.run_pod(&config).await.unwrap();
    let mounts = vec![mounted(&directory, "/cache")];
    let writer = client.run(&pod, sleeper("writer", &image, mounts)).await.unwrap();
    let other = client.run(&pod, sleeper("other", &image, Vec::new())).await.unwrap();
    let said = client.sh(&writer, "dd if=/dev/zero of=/cache/file bs=1M count=8192 2>&1").await.unwrap();
    assert!(said.contains("No space left on device"), "{said}");
    assert_eq!(client.sh(&other, "echo here").await.unwrap(), "here\n");
    let room = client.sh(&writer, "rm /cache/file; echo more >/cache/file && cat /cache/file").await.unwrap();
    assert_eq!(room, "more\n");
    client.remove_pod(&pod).await.unwrap();
    drop(volumes);
    host.stop().await.unwrap();
}

#[tokio::test]
async fn containers_of_a_pod_share_a_memory_volume() {
    let Some(mut host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("sharing", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let directory = volumes.memory("cache", MIB, 0).unwrap();
    let pod = client.run_pod(&config).await.unwrap();
    let whole = || vec![mounted(&directory, "/cache")];
    let first = client.run(&pod, sleeper("first", &image, whole())).await.unwrap();
    let second = client.run(&pod, sleeper("second", &image, whole())).await.unwrap();
    client
        .sh(&first, "mkdir /cache/made && echo one >/cache/made/file && echo two >/cache/given")
        .await
        .unwrap();
    assert_eq!(client.sh(&second, "cat /cache/made/file").await.unwrap(), "one\n");

    // Parts: an existing one, a file, and a missing one. A later daemon knows the volume too.
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    let parts = vec![
        mounted(&volumes.sub_path(&directory, "made", "parts").unwrap(), "/made"),
        mounted(&volumes.sub_path(&directory, "given", "parts").unwrap(), "/given"),
        mounted(&volumes.sub_path(&directory, "new/part", "parts").unwrap(), "/new"),
    ];
    let third = client.run(&pod, sleeper("parts", &image, parts)).await.unwrap();
    let read = "cat /made/file /given; echo three >/new/file";
    assert_eq!(client.sh(&third, read).await.unwrap(), "one\ntwo\n");
    assert_eq!(client.sh(&first, "cat /cache/new/part/file").await.unwrap(), "three\n");

    // The volume outlives its containers.
    for container in [&first, &second, &third] {
        client.stop(container, 0).await.unwrap();
        client.remove(container).await.unwrap();
    }
    let last = client.run(&pod, sleeper("last", &image, whole())).await.unwrap();
    assert_eq!(client.sh(&last, "cat /cache/made/file").await.unwrap(), "one\n");
    client.remove_pod(&pod).await.unwrap();
    drop(volumes);
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_memory_volume_with_files_of_the_node_shows_them() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("filled", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let directory = volumes.memory("cache", MIB, 0).unwrap();
    fs::write(directory.join("given"), "from the node\n").unwrap();
    let pod = client.run_pod(&config).await.unwrap();
    let mounts = vec![mounted(&directory, "/cache")];
    let container = client.run(&pod, sleeper("main", &image, mounts)).await.unwrap();
    let both = "cat /cache/given; echo back >/cache/back";
    assert_eq!(client.sh(&container, both).await.unwrap(), "from the node\n");
    assert_eq!(fs::read_to_string(directory.join("back")).unwrap(), "back\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// Access to the files of a ConfigMap.
const PLAIN: (u32, u32) = (0o644, 0);

fn read_only(host_path: &std::path::Path, container_path: &str) -> v1::Mount {
    v1::Mount { readonly: true, ..mounted(host_path, container_path) }
}

/// The content of the key in a version: as long in each.
fn numbered(number: u32) -> String {
    format!("{number:08}\n")
}

#[tokio::test]
async fn a_reloader_sees_each_of_a_hundred_updates_of_a_configmap() {
    const UPDATES: u32 = 100;
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let (mut layers, config) = tests_registry::busybox_image().unwrap();
    layers.push(Layer::builder().file("reloader", 0o755, reloader(numbered(0).len())).build());
    host.registry.push_image("e2e/reloader", "latest", layers, config).await.unwrap();
    let image = client.pull(&host.image("e2e/reloader:latest")).await.unwrap();
    let config = spec::pod("reloading", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let volume = volumes.publish("configmap", "app", &[("key", &numbered(0))], PLAIN).unwrap();
    let pod = client.run_pod(&config).await.unwrap();
    let mounts = vec![read_only(&volume, "/config")];
    let container = spec::container("main", &image, &["/reloader"]);
    let reloader = client.run(&pod, v1::ContainerConfig { mounts, ..container }).await.unwrap();
    let log = std::path::PathBuf::from(&config.log_directory).join("main.log");
    let seen = || -> Vec<u32> {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect()
    };
    for number in 0..=UPDATES {
        if number > 0 {
            volumes.publish("configmap", "app", &[("key", &numbered(number))], PLAIN).unwrap();
        }
        until_seen(format!("version {number} to arrive"), async || match seen() {
            all if all.last() == Some(&number) => Ok(()),
            all => Err((all, client.status(&reloader).await.unwrap())),
        })
        .await;
    }
    let mut all = seen();
    assert!(all.is_sorted(), "a version comes after a newer one: {all:?}");
    all.dedup();
    assert_eq!(all, (0..=UPDATES).collect::<Vec<_>>());
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// A program printing so many bytes of `/config/key`, and again after each rename in `/config`.
fn reloader(bytes: usize) -> Vec<u8> {
    // inotify_init1(2) returns the lowest free number, and the program only has standard streams; open(2)
    // returns the next one.
    const EVENTS: u32 = 3;
    const FILE: u32 = 4;
    const MOVED_TO: u32 = 0x80;
    let bytes = u32::try_from(bytes).unwrap();
    let code = |directory: u32, key: u32, buffer: u32| {
        let mut code = call(294, [0, 0, 0, 0]); // inotify_init1
        code.extend(unless_negative(1));
        code.extend(call(254, [EVENTS, directory, MOVED_TO, 0])); // inotify_add_watch
        code.extend(unless_negative(2));
        let again = code.len();
        code.extend(call(2, [key, 0, 0, 0])); // open
        code.extend(unless_negative(3));
        code.extend(call(0, [FILE, buffer, bytes, 0])); // read
        code.extend(unless_negative(4));
        code.extend(call(3, [FILE, 0, 0, 0])); // close
        code.extend(call(1, [1, buffer, bytes, 0])); // write
        code.extend(unless_negative(5));
        code.extend(call(0, [EVENTS, buffer, 4096, 0])); // read
        code.extend(unless_negative(6));
        code.push(0xe9); // jmp
        let back = i32::try_from(again).unwrap() - i32::try_from(code.len() + 4).unwrap();
        code.extend(back.to_le_bytes());
        code
    };
    let (directory, key) = (b"/config\0", b"/config/key\0");
    // The length does not depend on the arguments.
    let data = behind(code(0, 0, 0).len());
    let key_at = data + u32::try_from(directory.len()).unwrap();
    let mut body = code(data, key_at, key_at + u32::try_from(key.len()).unwrap());
    body.extend(directory);
    body.extend(key);
    body.extend([0; 4096]);
    elf(&body)
}

#[tokio::test]
async fn a_secret_reaches_the_container_with_its_modes_and_owner() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("secret", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let access = (0o440, 2000);
    let files = [("password", "first\n"), ("tls/key", "deep\n")];
    let volume = volumes.publish("secret", "login", &files, access).unwrap();
    let part = volumes.sub_path(&volume, "password", "main").unwrap();
    let pod = client.run_pod(&config).await.unwrap();
    let mounts = vec![read_only(&volume, "/secret"), read_only(&part, "/part")];
    let container = client.run(&pod, sleeper("main", &image, mounts)).await.unwrap();
    let kind =
        "while read a at kind rest; do case $at in /secret|/part) echo $kind;; esac; done </proc/mounts";
    assert_eq!(client.sh(&container, kind).await.unwrap(), "tmpfs\ntmpfs\n");
    let stat =
        "stat -c '%a %u:%g' /secret /secret/..data/ /secret/..data/password /secret/..data/tls/key /part";
    let wanted = "2755 0:2000\n2755 0:2000\n440 0:2000\n440 0:2000\n440 0:2000\n";
    assert_eq!(client.sh(&container, stat).await.unwrap(), wanted);
    let links = "readlink /secret/password; readlink /secret/tls; readlink /secret/..data";
    let version = fs::read_link(volume.join("..data")).unwrap();
    let wanted = format!("..data/password\n..data/tls\n{}\n", version.display());
    assert_eq!(client.sh(&container, links).await.unwrap(), wanted);
    let read = "cat /secret/password /secret/tls/key /part; echo x 2>/dev/null >/secret/new || echo no";
    assert_eq!(client.sh(&container, read).await.unwrap(), "first\ndeep\nfirst\nno\n");

    // The next version has other files; a part stays as it was.
    volumes.publish("secret", "login", &[("password", "second\n")], access).unwrap();
    client.prints(&container, "cat /secret/password", "second\n").await.unwrap();
    let rest = "cat /part; ls /secret; ls -A /secret | wc -l";
    client.prints(&container, rest, "first\npassword\n3\n").await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn an_update_while_the_daemon_is_down_arrives_with_its_return() {
    let Some(mut host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("away", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let volume = volumes.publish("configmap", "app", &[("key", "one\n")], PLAIN).unwrap();
    let pod = client.run_pod(&config).await.unwrap();
    let mounts = vec![read_only(&volume, "/config")];
    let container = client.run(&pod, sleeper("main", &image, mounts)).await.unwrap();
    assert_eq!(client.sh(&container, "cat /config/key").await.unwrap(), "one\n");
    host.daemon.stop().await.unwrap();
    volumes.publish("configmap", "app", &[("key", "two\n")], PLAIN).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    client.prints(&container, "cat /config/key", "two\n").await.unwrap();
    volumes.publish("configmap", "app", &[("key", "three\n")], PLAIN).unwrap();
    client.prints(&container, "cat /config/key", "three\n").await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
