//! `podvisor doctor` on a node with a killed daemon, killed VMMs and leftovers: it names each, and on request
//! removes exactly the orphaned ones.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests_e2e::traces::Traces;
use tests_e2e::wait::until;
use tests_e2e::{Host, spec};
use tokio::process::Command;

/// The exit status and the report.
async fn doctor(host: &Host, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(host.daemon.binary());
    let command = command.arg("--config").arg(host.daemon.config()).arg("doctor").args(arguments);
    let output = command.output().await.unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text)
}

fn daemon(host: &Host) -> Pid {
    Pid::from_raw(i32::try_from(host.daemon.pid()).unwrap())
}

async fn kill_and_wait(pid: Pid) {
    kill(pid, Signal::SIGKILL).unwrap();
    let ended = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    };
    until(format!("the process {pid} to end"), async || ended()).await;
}

async fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().await.unwrap().success());
}

#[tokio::test]
async fn what_a_killed_daemon_and_vmm_leave_is_named_and_only_what_is_nobodys_is_taken_away() {
    let Some(mut host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let kept = client.run_pod(&spec::pod("kept", host.dir())).await.unwrap();
    let main = client.run(&kept, spec::container("main", &image, &["sleep", "100000"])).await.unwrap();
    let lost = client.run_pod(&spec::pod("lost", host.dir())).await.unwrap();
    assert_eq!(doctor(&host, &[]).await.0, 0, "{}", doctor(&host, &[]).await.1);

    // An orphaned namespace is named and removed beside a running daemon, another pod's is not.
    let stray = format!("podvisor-{}", "5a".repeat(32));
    for name in [&stray, "foreign"] {
        ip(&["netns", "add", name]).await;
    }
    let (status, report) = doctor(&host, &[]).await;
    assert!(status == 1 && report.contains(&stray) && !report.contains("foreign"), "{report}");
    let (status, report) = doctor(&host, &["--repair"]).await;
    assert!(status == 0 && report.contains("differences: 1; left: 0"), "{report}");
    assert!(!std::path::Path::new("/run/netns").join(&stray).exists());
    assert_eq!(client.sh(&main, "echo here").await.unwrap(), "here\n");
    ip(&["netns", "delete", "foreign"]).await;

    // With the daemon killed, its pods are its own still.
    let vmm = client.vmm(&lost).await.unwrap();
    kill_and_wait(daemon(&host)).await;
    kill_and_wait(vmm).await;
    for arguments in [&[][..], &["--repair"]] {
        let (status, report) = doctor(&host, arguments).await;
        assert_eq!(status, 1, "{report}");
        assert!(
            report.contains(&format!("pod e2e/lost ({lost}) is ready on record, and no VMM runs")),
            "{report}"
        );
        assert!(report.contains("without a listener") && !report.contains("e2e/kept"), "{report}");
    }
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    assert_eq!(client.sh(&main, "echo still here").await.unwrap(), "still here\n");
    client.remove_pod(&lost).await.unwrap();

    // Without its record the pod is orphaned: all of it is named and removed, the VMM first.
    let vmm = client.vmm(&kept).await.unwrap();
    kill_and_wait(daemon(&host)).await;
    let store = host.dir().join("state/store.redb");
    std::fs::rename(&store, store.with_extension("away")).unwrap();
    let (status, report) = doctor(&host, &[]).await;
    assert_eq!(status, 1);
    for words in [
        &format!("VMM process {vmm} of {}", host.dir().join("run").display()),
        &format!("network of pod {kept}"),
        &format!("podvisor-{kept} of pod {kept}"),
        &format!("directory {}", host.dir().join("state/pods").join(&kept).display()),
        &format!("directory {}", host.dir().join("run/pods").join(&kept[..24]).display()),
    ] {
        assert!(report.contains(words), "{words}: {report}");
    }
    let (status, report) = doctor(&host, &["--repair"]).await;
    assert_eq!(status, 0, "{report}");
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    let (status, report) = doctor(&host, &[]).await;
    assert!(status == 0 && report.contains("nothing found"), "{report}");
    assert!(!store.exists(), "looking makes nothing");

    host.daemon.kill_and_restart().await.unwrap();
    assert_eq!(doctor(&host, &[]).await.0, 0);
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_daemon_that_hangs_does_not_hang_the_doctor() {
    let Some(host) = Host::start().await else { return };
    let daemon = daemon(&host);
    kill(daemon, Signal::SIGSTOP).unwrap();
    let (status, report) = doctor(&host, &[]).await;
    kill(daemon, Signal::SIGCONT).unwrap();
    assert_eq!(status, 2, "{report}");
    assert!(report.contains("did not answer within 10 s"), "{report}");
    host.stop().await.unwrap();
}
