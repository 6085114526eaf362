//! The files of an installation: an upgrade or a removal of the package takes them away while pods run.

use std::path::Path;

use proto_cri::v1::*;
use tests_e2e::built::Built;
use tests_e2e::traces::{Traces, vmms};
use tests_e2e::{Host, spec};

/// Copies the programs and the guest image into `dir`, as a separate installation.
fn install(built: &Built, dir: &Path) -> Built {
    for name in ["podvisor", "podvisor-vmm"] {
        std::fs::copy(built.bin.join(name), dir.join(name)).unwrap();
    }
    for name in ["vmlinux", "root.erofs", "scratch.ext4", "volume.ext4"] {
        std::fs::copy(built.guest_image.join(name), dir.join(name)).unwrap();
    }
    Built { bin: dir.to_owned(), guest_image: dir.to_owned() }
}

#[tokio::test]
async fn pods_and_daemon_go_on_when_the_files_that_they_started_from_are_gone() {
    let Some(built) = Built::of_environment() else { return };
    let installed = tempfile::tempdir().unwrap();
    let mut host = Host::with(&install(&built, installed.path())).await.unwrap();
    let before = Traces::take(host.dir()).unwrap();
    let vmms_before = vmms().unwrap().len();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("old", host.dir())).await.unwrap();
    let first = client.run(&pod, spec::container("first", &image, &["sleep", "100000"])).await.unwrap();

    // As dpkg does it: names go, and open files stay.
    for file in std::fs::read_dir(installed.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert_eq!(client.sh(&first, "echo here").await.unwrap(), "here\n");
    let second = client.run(&pod, spec::shell("second", &image, "echo second; exit 3")).await.unwrap();
    assert_eq!(client.wait(&second).await.unwrap().exit_code, 3);
    // Between the files' replacement and the daemon's restart, a new pod is of one build with its daemon.
    let late = client.run_pod(&spec::pod("late", host.dir())).await.unwrap();
    let of_late = client.run(&late, spec::container("main", &image, &["sleep", "100000"])).await.unwrap();
    assert_eq!(client.sh(&of_late, "echo late").await.unwrap(), "late\n");
    assert_eq!(vmms().unwrap().len(), vmms_before + 2, "a VMM has its name, however it was executed");

    host.upgrade(&built).await.unwrap();

    let mut client = host.client();
    for container in [&first, &of_late] {
        assert_eq!(client.sh(container, "echo again").await.unwrap(), "again\n");
        assert_eq!(client.status(container).await.unwrap().state(), ContainerState::ContainerRunning);
    }
    let third = client.run(&pod, spec::shell("third", &image, "exit 4")).await.unwrap();
    assert_eq!(client.wait(&third).await.unwrap().exit_code, 4);
    for pod in [&pod, &late] {
        client.stop_pod(pod).await.unwrap();
        client.remove_pod(pod).await.unwrap();
    }
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}

/// The head of a GNU build id among the notes of an ELF file, of 20 bytes; the id follows.
const BUILD_ID: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";

/// Renames a VMM and a kernel over those in `dir`, as dpkg does: the built ones, or with another build id if
/// `another`.
fn replace(dir: &Path, built: &Built, another: bool) {
    for file in [built.bin.join("podvisor-vmm"), built.guest_image.join("vmlinux")] {
        let mut content = std::fs::read(&file).unwrap();
        let heads = content.windows(BUILD_ID.len()).enumerate();
        let ids: Vec<usize> =
            heads.filter(|(_, head)| *head == BUILD_ID).map(|(at, _)| at + BUILD_ID.len()).collect();
        assert!(!ids.is_empty(), "{} has no build id", file.display());
        // A kernel holds one more, of its vDSO.
        ids.into_iter().for_each(|at| content[at] ^= u8::from(another));
        let new = dir.join("new");
        std::fs::write(&new, content).unwrap();
        std::fs::set_permissions(&new, std::fs::metadata(&file).unwrap().permissions()).unwrap();
        std::fs::rename(new, dir.join(file.file_name().unwrap())).unwrap();
    }
}

/// Returns how Status compares pods with the installation, once the outdated ones are found to be these.
pub(crate) async fn outdated(host: &Host, pods: &[&str]) -> serde_json::Value {
    let status = host.client().runtime.status(StatusRequest { verbose: true }).await.unwrap().into_inner();
    let info: serde_json::Value = serde_json::from_str(&status.info["config"]).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let found = info["versions"]["outdated"].as_array().unwrap().iter();
    let found: Vec<String> =
        found.map(|pod| format!("{}/{}", text(&pod["namespace"]), text(&pod["name"]))).collect();
    assert_eq!(found, pods, "{info}");
    info["versions"].clone()
}

#[tokio::test]
async fn pods_are_outdated_once_their_files_are_replaced_and_those_of_the_restarted_daemon_are_not() {
    let Some(built) = Built::of_environment() else { return };
    let installed = tempfile::tempdir().unwrap();
    let mut host = Host::with(&install(&built, installed.path())).await.unwrap();
    let mut client = host.client();
    let old = client.run_pod(&spec::pod("old", host.dir())).await.unwrap();
    assert_eq!(outdated(&host, &[]).await["restart_needed"], false);

    // The daemon goes on with its open files, and starts its next pods from these, too.
    replace(installed.path(), &built, true);
    let late = client.run_pod(&spec::pod("late", host.dir())).await.unwrap();
    let versions = outdated(&host, &["e2e/old", "e2e/late"]).await;
    assert_eq!(versions["restart_needed"], true, "{versions}");
    assert_eq!(versions["outdated"][1]["parts"], serde_json::json!(["vmm", "kernel"]), "{versions}");
    for pod in [&old, &late] {
        let versions = client.pod_status_verbose(pod).await.unwrap().1["versions"].clone();
        let installed = ["vmm", "kernel", "agent"].map(|part| versions[part]["installed"].clone());
        assert_eq!(installed, [false, false, true], "{versions}");
    }

    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    let new = client.run_pod(&spec::pod("new", host.dir())).await.unwrap();
    for pod in [&old, &late] {
        // The daemon serves before it has found its pods' VMs again.
        client.vmm(pod).await.unwrap();
    }
    let versions = outdated(&host, &["e2e/old", "e2e/late"]).await;
    assert_eq!((&versions["restart_needed"], &versions["vms"]), (&false.into(), &3.into()), "{versions}");

    // Copies of the first files are the same build.
    replace(installed.path(), &built, false);
    let versions = outdated(&host, &["e2e/new"]).await;
    assert_eq!(versions["restart_needed"], true, "{versions}");
    for pod in [&old, &late, &new] {
        client.remove_pod(pod).await.unwrap();
    }
    outdated(&host, &[]).await;
    host.stop().await.unwrap();
}
