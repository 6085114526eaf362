//! Unresponsive VMMs: they delay nothing else, and are killed before their containers are reported as ended.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::traces::Traces;
use tests_e2e::{Host, spec};

async fn freeze(client: &mut Client, pod: &str) -> Pid {
    let vmm = client.vmm(pod).await.unwrap();
    kill(vmm, Signal::SIGSTOP).unwrap();
    vmm
}

fn is_gone(vmm: Pid) -> bool {
    // The daemon reaps its own killed process, init reaps others.
    std::fs::read_to_string(format!("/proc/{vmm}/stat")).is_ok_and(|stat| stat.contains(") Z "))
        || kill(vmm, None).is_err()
}

#[tokio::test]
async fn a_frozen_vmm_holds_up_no_other_pod_at_the_daemons_start_and_is_killed() {
    let Some(mut host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut pods = Vec::new();
    for name in ["frozen", "well"] {
        let pod = client.run_pod(&spec::pod(name, host.dir())).await.unwrap();
        let main = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
        pods.push((pod, main));
    }
    let [(frozen, lost), (well, kept)] = &pods[..] else { panic!("two pods") };
    let vmm = freeze(&mut client, frozen).await;
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    assert_eq!(client.status(lost).await.unwrap().state(), v1::ContainerState::ContainerRunning);
    assert_eq!(client.sh(kept, "echo still here").await.unwrap(), "still here\n");
    assert!(!is_gone(vmm), "the other pod waited for nobody");
    client.stop(lost, 0).await.unwrap();
    assert!(is_gone(vmm));
    let status = client.status(lost).await.unwrap();
    assert_eq!((status.state(), status.exit_code), (v1::ContainerState::ContainerExited, 137));
    assert!(status.message.contains("was not found again"), "{}", status.message);
    client.remove_pod(frozen).await.unwrap();
    client.remove_pod(well).await.unwrap();
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_frozen_vm_is_given_up_by_the_stop_of_a_container() {
    let Some(host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("frozen", host.dir())).await.unwrap();
    let mut containers = Vec::new();
    for name in ["stopped", "beside"] {
        containers.push(client.run(&pod, spec::container(name, &image, &["sleep", "3600"])).await.unwrap());
    }
    let vmm = freeze(&mut client, &pod).await;
    client.stop(&containers[0], 0).await.unwrap();
    assert!(is_gone(vmm));
    for container in &containers {
        let status = client.wait(container).await.unwrap();
        assert_eq!(status.exit_code, 137);
        assert!(status.message.contains("the pod's VM was given up"), "{}", status.message);
    }
    client.remove_pod(&pod).await.unwrap();
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}
