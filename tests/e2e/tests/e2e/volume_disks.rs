//! emptyDirs on disk: the guest's own file systems, in images in the volumes' directories on the node.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::traces::Traces;
use tests_e2e::wait::{until, until_seen};
use tests_e2e::{Host, spec};

/// Bytes of a block in `st_blocks`.
const BLOCK_BYTES: u64 = 512;
/// Bytes of the file system's own data, including its journal, in an image of a few hundred GiB.
const OWN_BYTES: u64 = 16 << 20;

fn sleeper(name: &str, image: &str, mounts: Vec<v1::Mount>) -> v1::ContainerConfig {
    v1::ContainerConfig { mounts, ..spec::container(name, image, &["sleep", "100000"]) }
}

/// Bytes of the directory's files on the node: the kubelet's count.
fn on_node(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().flatten();
    entries.map(|entry| entry.metadata().unwrap().blocks() * BLOCK_BYTES).sum()
}

/// The pod's next sandbox, as the kubelet makes it when the one before has ended.
fn next(config: &v1::PodSandboxConfig) -> v1::PodSandboxConfig {
    let mut next = config.clone();
    next.metadata.get_or_insert_default().attempt += 1;
    next
}

async fn kill_vmm(client: &mut Client, pod: &str) {
    kill(client.vmm(pod).await.unwrap(), Signal::SIGKILL).unwrap();
    until("the end of the pod's VM to be noticed", async || {
        client.pod_status(pod).await.unwrap().state() == v1::PodSandboxState::SandboxNotready
    })
    .await;
}

#[tokio::test]
async fn an_empty_dir_is_a_disk_of_the_vms_that_outlives_each_vm() {
    let Some(host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("disk", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let directory = volumes.disk("data", 0o2777, 2000).unwrap();
    let pod = client.run_pod(&config).await.unwrap();
    let mounts = || vec![mounted(&directory, "/data")];
    let container = client.run(&pod, sleeper("main", &image, mounts())).await.unwrap();

    let kind = "while read a at kind rest; do [ $at = /data ] && echo $kind; done </proc/mounts; ls -A /data";
    assert_eq!(client.sh(&container, kind).await.unwrap(), "ext4\n", "with nothing in it");
    assert_eq!(client.sh(&container, "stat -c '%a %u:%g' /data").await.unwrap(), "2777 0:2000\n");
    let write = "echo kept >/data/file && chmod 700 /data && dd if=/dev/zero of=/data/big bs=1M count=64 2>/dev/null && sync";
    client.sh(&container, write).await.unwrap();
    let used = on_node(&directory);
    assert!((64 << 20..(64 << 20) + OWN_BYTES).contains(&used), "{used} bytes on the node");
    client.sh(&container, "rm /data/big && sync").await.unwrap();
    // The guest discards freed blocks after its commit, by a separate worker.
    until_seen("the node to have back what the guest has freed", async || {
        let used = on_node(&directory);
        if used < OWN_BYTES { Ok(()) } else { Err(used) }
    })
    .await;

    // A stopped pod, and one with a dead VM, find all their written data.
    client.stop_pod(&pod).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    let second = next(&config);
    let pod = client.run_pod(&second).await.unwrap();
    let container = client.run(&pod, sleeper("main", &image, mounts())).await.unwrap();
    let seen =
        client.sh(&container, "cat /data/file; stat -c '%a %g' /data; echo more >/data/more; sync").await;
    assert_eq!(seen.unwrap(), "kept\n700 2000\n");
    kill_vmm(&mut client, &pod).await;
    client.stop_pod(&pod).await.unwrap();
    let pod = client.run_pod(&next(&second)).await.unwrap();
    let container = client.run(&pod, sleeper("main", &image, mounts())).await.unwrap();
    assert_eq!(client.sh(&container, "cat /data/file /data/more").await.unwrap(), "kept\nmore\n");
    for pod in client.pods().await.unwrap() {
        client.remove_pod(&pod.id).await.unwrap();
    }
    drop(volumes);
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}

/// Sizes of files around those of blocks, and how many there are of each.
const SIZES: [(u64, usize); 10] = [
    (0, 50),
    (1, 200),
    (4095, 100),
    (4096, 100),
    (4097, 100),
    (20_000, 100),
    (65_536, 60),
    (300_001, 40),
    (1 << 20, 30),
    (9_999_999, 5),
];
/// Largest difference between the node's figure and the guest's, because of the disk's own tables and journal
/// (docs/limits.md).
const TABLES_BYTES: u64 = 5 << 20;

#[tokio::test]
async fn the_node_counts_of_an_empty_dir_what_its_files_take_in_the_guest() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("counted", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let directory = volumes.disk("data", 0o777, 0).unwrap();
    let pod = client.run_pod(&config).await.unwrap();
    let container =
        client.run(&pod, sleeper("main", &image, vec![mounted(&directory, "/data")])).await.unwrap();
    let mut fill = String::from("set -e; mkdir /data/some; cd /data/some; ");
    for (bytes, count) in SIZES {
        fill += &format!("for n in $(seq {count}); do yes | head -c {bytes} >{bytes}.$n; done; ");
    }
    // A hole takes no room.
    fill += "truncate -s 100M hole; sync";
    let filled = client.exec(&container, &["sh", "-c", &fill], 600).await.unwrap();
    assert_eq!(filled.exit_code, 0, "{}", String::from_utf8_lossy(&filled.stderr));
    let before = compared(&mut client, &container, &directory).await;
    // Four of ten of each size, and all of the largest but one.
    let remove = "set -e; cd /data/some; rm *.*[0369] 9999999.[124]; sync";
    client.sh(&container, remove).await.unwrap();
    let after = compared(&mut client, &container, &directory).await;
    assert!(after * 4 < before * 3, "{before} bytes, then {after}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// Waits until the node's figure is the guest's within 5 % and the disk's own tables; returns the guest's, in
/// bytes.
async fn compared(client: &mut Client, container: &str, directory: &Path) -> u64 {
    let counted = client.sh(container, "du -sk /data").await.unwrap();
    let guest = counted.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024;
    let same = guest - guest / 20..=guest + guest / 20 + TABLES_BYTES;
    // Freed blocks are discarded a moment later.
    let node = until_seen(format!("{same:?} bytes on the node"), async || {
        let node = on_node(directory);
        if same.contains(&node) { Ok(node) } else { Err(node) }
    });
    eprintln!("{guest} bytes by du in the guest, {} on the node", node.await);
    guest
}

#[tokio::test]
async fn containers_of_a_pod_share_an_empty_dir_with_all_that_a_file_system_has() {
    let Some(mut host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("shared", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let directory = volumes.disk("data", 0o777, 0).unwrap();
    let pod = client.run_pod(&config).await.unwrap();
    let whole = || vec![mounted(&directory, "/data")];
    let first = client.run(&pod, sleeper("first", &image, whole())).await.unwrap();
    let second = client.run(&pod, sleeper("second", &image, whole())).await.unwrap();
    let pipe = "mkfifo /data/pipe && (cat /data/pipe >/data/out; echo end >>/data/out) & echo";
    client.sh(&first, pipe).await.unwrap();
    let write = "until [ -p /data/pipe ]; do :; done; echo through >/data/pipe; until grep -q end /data/out; do :; done; cat /data/out";
    assert_eq!(client.sh(&second, write).await.unwrap(), "through\nend\n");
    // An upper directory of an overlay needs features missing in virtio-fs: whiteouts, opaque directories,
    // d_type.
    let link = "mkdir -p /data/made && echo one >/data/made/file && echo two >/data/given && ln /data/given /data/hard && stat -c %h /data/given";
    assert_eq!(client.sh(&first, link).await.unwrap(), "2\n");

    // Parts, for a later daemon too. The kubelet has made directories for all of them.
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
    assert_eq!(client.sh(&first, "cat /data/new/part/file").await.unwrap(), "three\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn more_empty_dirs_than_a_vm_has_slots_and_those_with_files_are_shared() {
    const SLOTS: usize = 6;
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("many", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let mut made: Vec<_> =
        (0..=SLOTS).map(|number| volumes.disk(&format!("v{number}"), 0o777, 0).unwrap()).collect();
    let filled = volumes.disk("filled", 0o777, 0).unwrap();
    fs::write(filled.join("given"), "from the node\n").unwrap();
    made.insert(0, filled.clone());
    let pod = client.run_pod(&config).await.unwrap();
    let mounts = made.iter().enumerate().map(|(number, one)| mounted(one, &format!("/v/{number}"))).collect();
    let container = client.run(&pod, sleeper("main", &image, mounts)).await.unwrap();
    let kinds = "while read a at kind rest; do case $at in /v/*) echo $kind;; esac; done </proc/mounts | sort | uniq -c | tr -s ' '";
    assert_eq!(client.sh(&container, kinds).await.unwrap(), " 6 ext4\n 2 virtiofs\n");
    let each = "cat /v/0/given; for v in /v/*; do echo $v >$v/name || echo no; done; cat /v/*/name | wc -l";
    assert_eq!(client.sh(&container, each).await.unwrap(), "from the node\n8\n");
    assert_eq!(fs::read_to_string(filled.join("name")).unwrap(), "/v/0\n");
    assert_eq!(fs::read_to_string(made[SLOTS + 1].join("name")).unwrap(), format!("/v/{}\n", SLOTS + 1));
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn an_empty_dir_of_a_pod_with_a_user_namespace_belongs_to_its_root() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let ids = vec![v1::IdMapping { container_id: 0, host_id: 131_072, length: 65_536 }];
    let user =
        v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: ids.clone(), gids: ids.clone() };
    let options = v1::NamespaceOption { userns_options: Some(user), ..Default::default() };
    let mut config = spec::pod("mapped", host.dir());
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default().namespace_options = Some(options.clone());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let directory = volumes.disk("data", 0o755, 0).unwrap();
    let pod = client.run_pod(&config).await.unwrap();
    let mount = v1::Mount { uid_mappings: ids.clone(), gid_mappings: ids, ..mounted(&directory, "/data") };
    let mut main = sleeper("main", &image, vec![mount]);
    let context =
        v1::LinuxContainerSecurityContext { namespace_options: Some(options), ..Default::default() };
    main.linux.get_or_insert_default().security_context = Some(context);
    let container = client.run(&pod, main).await.unwrap();
    let own = "echo mine >/data/file && stat -c '%u:%g' /data /data/file";
    assert_eq!(client.sh(&container, own).await.unwrap(), "0:0\n0:0\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
