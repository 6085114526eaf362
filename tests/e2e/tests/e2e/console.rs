//! `podvisor console`: a guest's output while its pod runs, after its VMM was killed, and after its pod was
//! removed.

use nix::sys::signal::{Signal, kill};
use proto_cri::v1;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

fn console(host: &Host, arguments: &[&str]) -> Command {
    let mut command = Command::new(host.daemon.binary());
    command.arg("--config").arg(host.daemon.config()).arg("console").args(arguments);
    command
}

async fn printed(host: &Host, pod: &str) -> String {
    let output = console(host, &[pod]).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A privileged container. It may write to its guest's kernel log, and so to its console.
fn writer(image: &str) -> v1::ContainerConfig {
    spec::privileged(spec::shell("writer", image, "exec sleep 100000"))
}

#[tokio::test]
async fn a_console_is_printed_and_followed_and_outlives_vmm_daemon_and_pod() {
    let Some(mut host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::privileged_pod("talks", host.dir())).await.unwrap();
    let main = client.run(&pod, writer(&image)).await.unwrap();
    // An emergency is on the console of a quiet kernel, too.
    let say =
        |line: &str| format!("[ -e /dev/kmsg ] || mknod /dev/kmsg c 1 11; echo '<0>{line}' > /dev/kmsg");
    client.sh(&main, &say("the first line")).await.unwrap();
    // The guest's kernel has the line a moment earlier than the console.
    until_seen("the first line on the console", async || {
        let by_id = printed(&host, &pod[..12]).await;
        if by_id.contains("the first line") { Ok(()) } else { Err(by_id) }
    })
    .await;
    assert!(printed(&host, "talks").await.contains("the first line"));

    let mut following =
        console(&host, &["-f", "talks"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    while !lines.next_line().await.unwrap().unwrap().contains("the first line") {}
    client.sh(&main, &say("the second line")).await.unwrap();
    while !lines.next_line().await.unwrap().unwrap().contains("the second line") {}

    kill(client.vmm(&pod).await.unwrap(), Signal::SIGKILL).unwrap();
    client.wait(&main).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    while lines.next_line().await.unwrap().is_some() {}
    assert!(following.wait().await.unwrap().success());
    host.daemon.stop().await.unwrap();
    assert!(printed(&host, "talks").await.contains("the second line"));
    let unknown = console(&host, &["nobody"]).output().await.unwrap();
    assert!(!unknown.status.success());
    assert!(
        String::from_utf8_lossy(&unknown.stderr).contains("no pod has the id or the name"),
        "{unknown:?}"
    );
    host.network.remove().await.unwrap();
}
