//! Volumes that a guest keeps itself, laid out on the node as a kubelet does it.

use std::fs;
use std::time::Duration;

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::traces::Traces;
use tests_e2e::{Host, spec};

const MIB: u64 = 1 << 20;

/// Pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

fn sleeper(name: &str, image: &str, mounts: Vec<v1::Mount>) -> v1::ContainerConfig {
    v1::ContainerConfig { mounts, ..spec::container(name, image, &["sleep", "3600"]) }
}

/// Waits until a line of shell prints this. The test's own deadline bounds the wait.
async fn prints(client: &mut Client, container: &str, line: &str, wanted: &str) {
    while client.sh(container, line).await.unwrap() != wanted {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
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
    prints(&mut client, &container, "stat -f -c %b /cache", "512\n").await;
    assert_eq!(client.sh(&container, "cat /cache/file").await.unwrap(), "here\n");
    client.remove_pod(&pod).await.unwrap();
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

    // Parts: one that is there, a file, and one that is not there yet. A later daemon knows the volume too.
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
    assert_eq!(Traces::take(host.dir()).unwrap().since(&before), Vec::<String>::new());
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
