//! Devices of the node in containers: block devices as disks of the pod's VM, and refused devices.

use std::fs;
use std::path::{Path, PathBuf};

use proto_cri::v1;
use tests_e2e::loop_device::LoopDevice;
use tests_e2e::{Host, spec};
use tonic::Code;

/// Bytes of a disk.
const BYTES: u64 = 4 << 20;

/// A disk beginning with these bytes.
fn disk(file: PathBuf, content: &[u8]) -> LoopDevice {
    let disk = LoopDevice::make(file, BYTES).unwrap();
    fs::write(disk.device(), content).unwrap();
    disk
}

fn device(host_path: &Path, container_path: &str, permissions: &str) -> v1::Device {
    v1::Device {
        host_path: host_path.display().to_string(),
        container_path: container_path.into(),
        permissions: permissions.into(),
    }
}

fn with(name: &str, image: &str, devices: Vec<v1::Device>) -> v1::ContainerConfig {
    v1::ContainerConfig { devices, ..spec::container(name, image, &["sleep", "4711"]) }
}

#[tokio::test]
async fn block_devices_of_the_node_are_disks_of_the_container_with_the_permissions_asked() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let data = disk(host.dir().join("data.img"), b"of the node");
    let fixed = disk(host.dir().join("fixed.img"), b"not to be written");
    let pod = client.run_pod(&spec::pod("disks", host.dir())).await.unwrap();
    let devices =
        vec![device(data.device(), "/dev/xvda", "rwm"), device(fixed.device(), "/deep/inside/disk", "r")];
    let first = client.run(&pod, with("first", &image, devices)).await.unwrap();
    let read = "head -c 11 /dev/xvda; echo; head -c 17 /deep/inside/disk; echo; \
                stat -c %F:%a:%u /dev/xvda; blockdev --getsize64 /dev/xvda";
    let expected = format!("of the node\nnot to be written\nblock special file:660:0\n{BYTES}\n");
    assert_eq!(client.sh(&first, read).await.unwrap(), expected);
    let write = "echo by the guest > /dev/xvda && sync /dev/xvda && \
                 { echo no > /deep/inside/disk; } 2>&1; true";
    let denied = client.sh(&first, write).await.unwrap();
    assert!(denied.contains("ot permitted"), "{denied}");
    // Another node of the same disk has the same limits, and the pod's own disk is inaccessible.
    let around = "cd /tmp; set -- $(stat -c '%t %T' /deep/inside/disk); \
                  mknod again b $((0x$1)) $((0x$2)) 2>&1; \
                  mknod scratch b 254 0; head -c 1 scratch 2>&1; true";
    let denied = client.sh(&first, around).await.unwrap();
    assert_eq!(denied.matches("not permitted").count(), 2, "{denied}");
    assert!(fs::read(data.file()).unwrap().starts_with(b"by the guest\n"));

    // A second container has the same disk; with the last it is unplugged.
    let again = vec![device(data.device(), "/dev/xvdb", "rw")];
    let second = client.run(&pod, with("second", &image, again)).await.unwrap();
    client.remove(&first).await.unwrap();
    assert_eq!((data.holders(), fixed.holders()), (1, 0));
    let shared = "head -c 12 /dev/xvdb; echo left behind > /dev/xvdb";
    assert_eq!(client.sh(&second, shared).await.unwrap(), "by the guest");
    client.remove(&second).await.unwrap();
    assert_eq!(data.holders(), 0);
    assert!(fs::read(data.file()).unwrap().starts_with(b"left behind\n"));

    let missing = PathBuf::from("/dev/no-such-disk");
    for (config, words) in [
        (with("char", &image, vec![device("/dev/kmsg".as_ref(), "/dev/n", "rwm")]), "/dev/kmsg: a character"),
        (with("none", &image, vec![device(&missing, "/dev/n", "rwm")]), "/dev/no-such-disk"),
        (with("letters", &image, vec![device(data.device(), "/dev/n", "x")]), "devices.permissions"),
    ] {
        let refusal = client.create(&pod, config).await.unwrap_err();
        assert!(refusal.code() == Code::InvalidArgument && refusal.message().contains(words), "{refusal}");
    }
    client.remove_pod(&pod).await.unwrap();
    in_a_user_namespace(&host, &image, &data).await;
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_block_device_that_is_enlarged_grows_in_the_container_that_has_it() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let data = disk(host.dir().join("data.img"), b"of the node");
    let pod = client.run_pod(&spec::pod("growing", host.dir())).await.unwrap();
    let devices = vec![device(data.device(), "/dev/xvda", "rwm")];
    let container = client.run(&pod, with("main", &image, devices)).await.unwrap();
    let size = "blockdev --getsize64 /dev/xvda";
    assert_eq!(client.sh(&container, size).await.unwrap(), format!("{BYTES}\n"));
    data.enlarge(2 * BYTES).unwrap();
    let larger = format!(
        "until [ $({size}) = {} ]; do sleep 0.2; done; head -c 11 /dev/xvda; \
                          echo at the end | dd of=/dev/xvda bs=1M seek=7 conv=fsync 2>/dev/null",
        2 * BYTES
    );
    assert_eq!(client.sh(&container, &larger).await.unwrap(), "of the node");
    assert!(fs::read(data.file()).unwrap()[7 << 20..].starts_with(b"at the end\n"));
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

async fn in_a_user_namespace(host: &Host, image: &str, disk: &LoopDevice) {
    let mut client = host.client();
    let ids = vec![v1::IdMapping { container_id: 0, host_id: 1000, length: 100 }];
    let user = v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: ids.clone(), gids: ids };
    let options = v1::NamespaceOption { userns_options: Some(user), ..Default::default() };
    let mut pod = spec::pod("mapped", host.dir());
    let linux = pod.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default().namespace_options = Some(options.clone());
    let pod = client.run_pod(&pod).await.unwrap();
    let mut config = with("mapped", image, vec![device(disk.device(), "/dev/xvda", "rw")]);
    let context =
        v1::LinuxContainerSecurityContext { namespace_options: Some(options), ..Default::default() };
    config.linux.get_or_insert_default().security_context = Some(context);
    let container = client.run(&pod, config).await.unwrap();
    let used = "head -c 11 /dev/xvda; echo mapped > /dev/xvda; stat -c %F:%u:%g /dev/xvda";
    let seen = client.sh(&container, used).await.unwrap();
    assert_eq!(seen, "left behindblock special file:0:0\n");
    client.remove_pod(&pod).await.unwrap();
    assert!(fs::read(disk.file()).unwrap().starts_with(b"mapped\n"));
}

#[tokio::test]
async fn devices_that_a_guest_has_of_its_own_reach_the_containers_that_ask() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("plugins", host.dir())).await.unwrap();
    let devices =
        [("/dev/fuse", "/dev/fuse"), ("/dev/net/tun", "/dev/net/tun"), ("/dev/null", "/devices/nil")];
    let devices = devices.map(|(host_path, path)| device(host_path.as_ref(), path, "rw")).into();
    let asks = client.run(&pod, with("asks", &image, devices)).await.unwrap();
    let use_all = "exec 3<>/dev/fuse 4<>/dev/net/tun && echo x >/devices/nil && \
                   stat -c %t:%T:%a /dev/fuse /dev/net/tun /devices/nil";
    assert_eq!(client.sh(&asks, use_all).await.unwrap(), "a:e5:666\na:c8:666\n1:3:666\n");
    let other = client.run(&pod, with("other", &image, vec![])).await.unwrap();
    // Nodes may be made, and opened if every container has the device.
    let around = "ls /dev/fuse 2>&1; cd /tmp; mknod null c 1 3; echo x >null && echo opened; \
                  mknod fuse c 10 229; head -c 1 fuse 2>&1; mknod log c 1 11; head -c 1 log 2>&1; true";
    let seen = client.sh(&other, around).await.unwrap();
    assert!(seen.contains("No such file") && seen.contains("opened\n"), "{seen}");
    assert_eq!(seen.matches("not permitted").count(), 2, "{seen}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn an_allotment_of_a_device_plugin_reaches_the_container_as_the_kubelet_hands_it_on() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("allotted", host.dir())).await.unwrap();
    let library = host.dir().join("library");
    fs::create_dir(&library).unwrap();
    fs::write(library.join("driver.so"), "a driver").unwrap();
    // The kubelet copies each part of an AllocateResponse into the container's config.
    let allotted = |name: &str, host_path: &str| v1::ContainerConfig {
        envs: vec![v1::KeyValue { key: "PLUGIN_VISIBLE".into(), value: b"0,1".to_vec() }],
        mounts: vec![v1::Mount {
            host_path: library.display().to_string(),
            container_path: "/opt/plugin".into(),
            readonly: true,
            ..Default::default()
        }],
        annotations: [("plugin.example.com/slice".to_owned(), "7".to_owned())].into(),
        ..with(name, &image, vec![device(host_path.as_ref(), "/dev/fuse", "mrw")])
    };
    let container = client.run(&pod, allotted("good", "/dev/fuse")).await.unwrap();
    let look = "echo $PLUGIN_VISIBLE; cat /opt/plugin/driver.so; echo; exec 3<>/dev/fuse && stat -c %t:%T /dev/fuse; \
                touch /opt/plugin/x 2>&1; true";
    let seen = client.sh(&container, look).await.unwrap();
    assert!(seen.starts_with("0,1\na driver\na:e5\n") && seen.contains("Read-only file system"), "{seen}");
    let status = client.status(&container).await.unwrap();
    assert_eq!(status.annotations["plugin.example.com/slice"], "7");

    // The node's kernel has the device, and so no VM can.
    let refusal = client.create(&pod, allotted("refused", "/dev/kmsg")).await.unwrap_err();
    assert_eq!(refusal.code(), Code::InvalidArgument);
    for words in ["/dev/kmsg", "a runtime behind Podvisor (upstream)"] {
        assert!(refusal.message().contains(words), "{refusal}");
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
