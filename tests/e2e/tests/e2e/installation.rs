//! The files of an installation: an upgrade or a removal of the package takes them away while pods run.

use std::path::Path;

use proto_cri::v1::*;
use tests_e2e::built::Built;
use tests_e2e::traces::{Traces, vmms};
use tests_e2e::{Host, spec};

/// Copies the programs and the guest image into `dir`, as an installation of its own.
fn install(built: &Built, dir: &Path) -> Built {
    for name in ["podvisor", "podvisor-vmm"] {
        std::fs::copy(built.bin.join(name), dir.join(name)).unwrap();
    }
    for name in ["vmlinux", "root.erofs", "scratch.ext4"] {
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

    // As dpkg does it: names go, and what is open stays.
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
    assert_eq!(Traces::take(host.dir()).unwrap().since(&before), Vec::<String>::new());
    host.stop().await.unwrap();
}
