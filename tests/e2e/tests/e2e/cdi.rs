//! CDI devices: the edits of the node's files reach the container, edits impossible for a VM are refused by
//! name, and a file with errors affects no other device. The files are the node's own, so each test has its
//! own vendor.

use std::fs;
use std::path::{Path, PathBuf};

use proto_cri::v1;
use tests_e2e::loop_device::LoopDevice;
use tests_e2e::{Host, spec};
use tokio::process::Command;
use tonic::Code;

/// A CDI file of the node. Dropping the value removes it.
struct File(PathBuf);

impl File {
    fn write(directory: &str, name: &str, content: &str) -> File {
        fs::create_dir_all(directory).unwrap();
        let path = Path::new(directory).join(name);
        // Other tests' daemons may read at any time.
        let unfinished = path.with_extension("tmp");
        fs::write(&unfinished, content).unwrap();
        fs::rename(unfinished, &path).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn asks(name: &str, image: &str, devices: &[&str]) -> v1::ContainerConfig {
    let cdi_devices = devices.iter().map(|name| v1::CdiDevice { name: (*name).into() }).collect();
    v1::ContainerConfig { cdi_devices, ..spec::container(name, image, &["sleep", "4711"]) }
}

#[tokio::test]
async fn a_container_has_what_the_files_say_of_its_cdi_devices() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let library = host.dir().join("library");
    fs::create_dir(&library).unwrap();
    fs::write(library.join("driver.so"), "a driver").unwrap();
    let yaml = format!(
        "cdiVersion: 0.7.0\nkind: reach.example.com/accelerator\ncontainerEdits:\n  env: [ALL=of-the-file, ASKED=by-cdi]\n\
         devices:\n- name: zero\n  containerEdits:\n    env: [ZERO=0]\n    deviceNodes:\n    - path: /dev/fuse\n      \
         permissions: rw\n      uid: 7\n      fileMode: 0640\n    mounts:\n    - hostPath: {}\n      containerPath: /opt/lib\n      \
         options: [ro, nosuid, nodev, rbind, rprivate]\n    - hostPath: tmpfs\n      containerPath: /opt/run\n      \
         type: tmpfs\n      options: [nosuid, nodev, size=64k]\n    additionalGids: [4711]\n- name: one\n  \
         containerEdits:\n    env: [ONE=installers]\n",
        library.display()
    );
    let json = r#"{"cdiVersion":"0.6.0","kind":"reach.example.com/accelerator","devices":
        [{"name":"one","containerEdits":{"env":["ONE=drivers"]}}]}"#;
    let _installers = File::write("/etc/cdi", "podvisor-reach.yaml", &yaml);
    let _drivers = File::write("/var/run/cdi", "podvisor-reach.json", json);

    let pod = client.run_pod(&spec::pod("cdi", host.dir())).await.unwrap();
    let mut config = asks("both", &image, &["reach.example.com/accelerator=zero"]);
    config.envs = vec![v1::KeyValue { key: "ASKED".into(), value: b"by-the-pod".to_vec() }];
    let both = "reach.example.com/accelerator=one,reach.example.com/accelerator=zero";
    config.annotations = [("cdi.k8s.io/claim".to_owned(), both.to_owned())].into();
    let container = client.run(&pod, config).await.unwrap();
    let variables = "echo $ALL $ASKED $ZERO $ONE";
    assert_eq!(client.sh(&container, variables).await.unwrap(), "of-the-file by-cdi 0 drivers\n");
    let node = "stat -c %t:%T:%a:%u /dev/fuse; exec 3<>/dev/fuse && echo opens; grep Groups /proc/1/status";
    let seen = client.sh(&container, node).await.unwrap();
    assert!(seen.starts_with("a:e5:640:7\nopens\n") && seen.contains("4711"), "{seen}");
    let mounts = "cat /opt/lib/driver.so; echo; grep ' /opt/' /proc/mounts; touch /opt/lib/x 2>&1; true";
    let seen = client.sh(&container, mounts).await.unwrap();
    assert!(seen.starts_with("a driver\n") && seen.contains("Read-only file system"), "{seen}");
    let options = |path: &str| seen.lines().find(|line| line.contains(path)).unwrap().to_owned();
    assert!(options(" /opt/lib ").contains("nosuid"), "{seen}");
    assert!(options(" /opt/run ").contains("tmpfs") && options(" /opt/run ").contains("size=64k"), "{seen}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_program_without_root_opens_cdi_devices_without_an_owner() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let disk = LoopDevice::make(host.dir().join("disk.img"), 1 << 20).unwrap();
    fs::write(disk.device(), "of the node").unwrap();
    // The mode of the second is that of stat(2), with the kind of file.
    let json = format!(
        r#"{{"cdiVersion":"0.6.0","kind":"owned.example.com/d","devices":[{{"name":"d","containerEdits":{{
            "deviceNodes":[{{"path":"/dev/xvda","hostPath":"{}"}},
            {{"path":"/dev/net/tun","type":"c","major":10,"minor":200,"fileMode":{}}}]}}}}]}}"#,
        disk.device().display(),
        0o20_600,
    );
    let _file = File::write("/etc/cdi", "podvisor-owned.json", &json);
    let pod = client.run_pod(&spec::pod("owned", host.dir())).await.unwrap();
    let config = spec::with_user(asks("app", &image, &["owned.example.com/d=d"]), 1234, 4321);
    let container = client.run(&pod, config).await.unwrap();
    let look =
        "id -u; stat -c %a:%u:%g /dev/xvda /dev/net/tun; head -c 11 /dev/xvda; exec 3<>/dev/net/tun && echo";
    let seen = client.sh(&container, look).await.unwrap();
    assert_eq!(seen, "1234\n660:1234:4321\n600:1234:4321\nof the node\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_cdi_file_with_errors_and_what_a_vm_cannot_have_disturb_no_other_device() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let good = r#"{"cdiVersion":"1.0.0","kind":"good.example.com/d","devices":[
        {"name":"env","containerEdits":{"env":["GOOD=1"]}},
        {"name":"hook","containerEdits":{"hooks":[{"hookName":"createContainer","path":"/usr/bin/ldcache"}]}},
        {"name":"log","containerEdits":{"deviceNodes":[{"path":"/dev/log0","hostPath":"/dev/kmsg"}]}}]}"#;
    let bad = r#"{"cdiVersion":"1.0.0","kind":"bad.example.com/d","devices":[],"gpus":1}"#;
    let files = [
        File::write("/etc/cdi", "podvisor-good.json", good),
        File::write("/etc/cdi", "podvisor-bad.json", bad),
        File::write("/etc/cdi", "podvisor-torn.yaml", "kind: ["),
    ];
    let pod = client.run_pod(&spec::pod("faults", host.dir())).await.unwrap();
    for (number, (device, words)) in [
        ("bad.example.com/d=a", ["podvisor-bad.json", "gpus"]),
        ("nobodys.example.com/d=a", ["podvisor-torn.yaml", "nobodys.example.com/d=a"]),
        ("good.example.com/d=hook", ["podvisor-good.json: containerEdits.hooks", "/usr/bin/ldcache"]),
        ("good.example.com/d=log", ["containerEdits.deviceNodes: /dev/kmsg", "behind Podvisor (upstream)"]),
        ("good.example.com", ["CDI_devices", "no qualified name"]),
    ]
    .into_iter()
    .enumerate()
    {
        let config = asks(&format!("refused{number}"), &image, &[device]);
        let refusal = client.create(&pod, config).await.unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal}");
        assert!(words.iter().all(|words| refusal.message().contains(words)), "{refusal}");
    }
    let container = client.run(&pod, asks("good", &image, &["good.example.com/d=env"])).await.unwrap();
    assert_eq!(client.sh(&container, "echo $GOOD").await.unwrap(), "1\n");
    client.remove_pod(&pod).await.unwrap();

    let mut check = Command::new(host.daemon.binary());
    let check = check.arg("--config").arg(host.daemon.config()).arg("check").output().await.unwrap();
    let text = String::from_utf8_lossy(&check.stdout);
    for path in files[1..].iter().map(|file| file.0.display().to_string()) {
        let noted = |line: &str| line.starts_with("note  CDI files: ") && line.contains(&path);
        assert!(text.lines().any(noted), "{path} in {text}");
    }
    assert!(!text.contains("podvisor-good.json"), "{text}");
    host.stop().await.unwrap();
}
