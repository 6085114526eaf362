//! `podvisor ps`, `inspect`, `top` and `events` before a real daemon, over its restart too; and the
//! conditions of Status for a faulty node with running pods.

use std::process::{Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use proto_cri::v1;
use serde_json::Value;
use tests_e2e::client::Client;
use tests_e2e::pasted::shows;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

/// MiB of a disk with room for an image and a pod.
const DISK_MIB: u64 = 256;

/// Blocks of the page of commands, run with a pod that they show.
const PAGE_SHOWS: [&str; 3] = ["$ podvisor ps", "$ podvisor top", "$ podvisor images"];

/// Longest wait for an event. Then the test causes another one.
const HEARD_WITHIN: Duration = Duration::from_secs(5);

fn podvisor(host: &Host, arguments: &[&str]) -> Command {
    let mut command = Command::new(host.daemon.binary());
    command.arg("--config").arg(host.daemon.config()).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn run(host: &Host, arguments: &[&str]) -> (Output, String, String) {
    let output = podvisor(host, arguments).output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output, stdout, stderr)
}

async fn json(host: &Host, arguments: &[&str]) -> Value {
    let (output, text, error) = run(host, &[arguments, &["-o", "json"]].concat()).await;
    assert!(output.status.success(), "{arguments:?}: {error}");
    serde_json::from_str(&text).unwrap()
}

/// Reads lines up to the one with all these words.
async fn until(lines: &mut Lines<BufReader<ChildStdout>>, words: &[&str]) -> String {
    loop {
        let line = lines.next_line().await.unwrap().unwrap();
        if words.iter().all(|word| line.contains(word)) {
            return line;
        }
    }
}

#[tokio::test]
async fn people_see_a_pods_whole_life_in_four_commands() {
    let Some(mut host) = Host::start().await else { return };
    let mut client = host.client();
    let mut following = podvisor(&host, &["events"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut events = BufReader::new(following.stdout.take().unwrap()).lines();
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut config = spec::pod("seen", host.dir());
    config.labels = [("app".to_owned(), "seen".to_owned())].into();
    // A first event may come before anybody listens.
    let mut pods = 0;
    let first = until_seen("an event", async || {
        pods += 1;
        let other = client.run_pod(&spec::pod(&format!("heard-{pods}"), host.dir())).await.unwrap();
        client.remove_pod(&other).await.unwrap();
        tokio::time::timeout(HEARD_WITHIN, events.next_line()).await
    });
    let first = first.await.unwrap().unwrap();
    assert!(first.contains("e2e/heard-"), "{first}");
    let pod = client.run_pod(&config).await.unwrap();
    until(&mut events, &["created", "e2e/seen  pod", &pod[..12]]).await;
    let busy = "while :; do n=$((n+1)); sleep 0.02; done";
    let main = client.run(&pod, spec::shell("main", &image, busy)).await.unwrap();
    until(&mut events, &["started", "e2e/seen/main", &main[..12]]).await;
    let ended = client.run(&pod, spec::shell("ended", &image, "exit 3")).await.unwrap();
    client.wait(&ended).await.unwrap();
    until(&mut events, &["stopped", "e2e/seen/ended", "exit code 3"]).await;

    lists(&host, &pod, &main).await;
    inspects(&host, &pod, &main).await;
    figures(&host, &pod).await;
    for begins in PAGE_SHOWS {
        shows(&host, "docs/commands.md", begins).await.unwrap();
    }
    completes(&host).await;
    ambiguous(&host, &mut client).await;

    // The daemon is killed, and the events go on with the next one.
    host.daemon.kill_and_restart().await.unwrap();
    until(&mut events, &["broken", "the daemon's events broke off"]).await;
    until(&mut events, &["resumed", "may have been lost"]).await;
    let mut client = host.client();
    let (output, stopped, error) = run(&host, &["stop", "-t", "0", "e2e/seen/main"]).await;
    assert!(
        output.status.success() && stopped == format!("stopped {}: e2e/seen/main\n", &main[..12]),
        "{stopped}{error}"
    );
    until(&mut events, &["stopped", "e2e/seen/main", "exit code 137"]).await;
    client.remove_pod(&pod).await.unwrap();
    until(&mut events, &["deleted", "e2e/seen  pod"]).await;
    following.kill().await.unwrap();

    host.daemon.stop().await.unwrap();
    for arguments in [&["ps"][..], &["inspect", "seen"], &["top"], &["events"]] {
        let (output, _, error) = run(&host, arguments).await;
        assert_eq!(output.status.code(), Some(125));
        assert!(error.contains(host.daemon.socket().to_str().unwrap()), "{arguments:?}: {error}");
    }
    host.network.remove().await.unwrap();
}

async fn lists(host: &Host, pod: &str, main: &str) {
    let (output, text, warned) = run(host, &["ps"]).await;
    assert!(output.status.success() && warned.is_empty(), "{warned}");
    let row = text.lines().find(|line| line.contains(&main[..12])).unwrap();
    for word in ["e2e", "seen", "main", "running", "vm", "sha256:"] {
        assert!(row.contains(word), "{word}: {row}");
    }
    assert!(!text.contains("ended") && run(host, &["ps", "-a"]).await.1.contains("ended"));
    for filter in [&["-p", "e2e/seen"][..], &["-p", &pod[..10]], &["-l", "app=seen"], &["-n", "e2e"]] {
        let pods = json(host, &[&["ps"], filter].concat()).await;
        assert_eq!((&pods[0]["id"], pods.as_array().unwrap().len()), (&pod.into(), 1), "{filter:?}");
        assert_eq!(pods[0]["containers"][0]["state"], "running");
    }
    let exited = json(host, &["ps", "--state", "exited"]).await;
    assert_eq!(exited[0]["containers"][0]["name"], "ended");
    // A reader disconnecting after a line.
    let line = format!(
        "{} --config {} ps -a | head -1",
        host.daemon.binary().display(),
        host.daemon.config().display()
    );
    let piped = Command::new("bash").args(["-o", "pipefail", "-c", &line]).output().await.unwrap();
    assert!(piped.status.success() && piped.stderr.is_empty(), "{piped:?}");
}

async fn inspects(host: &Host, pod: &str, main: &str) {
    for sought in [pod, &pod[..10], "seen", "e2e/seen"] {
        let all = json(host, &["inspect", sought]).await;
        assert_eq!((&all[0]["id"], &all[0]["kind"]), (&pod.into(), &"pod".into()), "{sought}");
    }
    let all = json(host, &["inspect", "e2e/seen/main", "seen"]).await;
    assert_eq!((&all[0]["id"], &all[0]["state"]), (&main.into(), &"running".into()));
    assert_eq!(all[1]["containers"].as_array().unwrap().len(), 2);
    assert!(all[1]["info"]["vm"]["memory_bytes"].as_u64().unwrap() >= 64 << 20, "{all}");
    let page = run(host, &["inspect", &main[..10]]).await.1;
    assert!(page.contains("kind: container\n") && page.contains("name: main\n"), "{page}");
    let page = run(host, &["inspect", "seen"]).await.1;
    assert!(page.contains("runtime: vm\n") && page.contains("    exitCode: 3\n"), "{page}");
}

/// A shell's script asks as bash's does, at the last word. Nothing is completed if the daemon does not answer
/// within a second, so a busy node is asked again.
async fn completed(host: &Host, words: &[&str]) -> String {
    let line = ["--", "podvisor", "--config", host.daemon.config().to_str().unwrap()];
    let index = line.len() - 2 + words.len();
    until_seen(format!("a completion of {words:?}"), async || {
        let output = Command::new(host.daemon.binary())
            .args(line)
            .args(words)
            .env("PODVISOR_COMPLETE", "bash")
            .env("_CLAP_COMPLETE_INDEX", index.to_string())
            .output();
        let text = String::from_utf8(output.await.unwrap().stdout).unwrap();
        if text.is_empty() { Err(text) } else { Ok(text) }
    })
    .await
}

async fn completes(host: &Host) {
    assert_eq!(completed(host, &["exec", "e2e/"]).await, "e2e/seen/main", "the ended one takes no command");
    assert_eq!(completed(host, &["rm", "se"]).await, "seen");
    assert_eq!(completed(host, &["inspect", "e2e/seen/"]).await, "e2e/seen/main\ne2e/seen/ended");
    let tag = host.busybox();
    assert!(completed(host, &["rmi", &tag[..3]]).await.contains(&tag));
}

async fn figures(host: &Host, pod: &str) {
    let (output, text, error) = run(host, &["top", "--once"]).await;
    assert!(output.status.success(), "{error}");
    let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((words.len(), &words[..2]), (7, &["e2e", "seen"][..]), "{text}");
    // A slow guest has metrics of one time in both samples, and then no rate.
    let pods = until_seen("the rate of a container's work", async || {
        let pods = json(host, &["top"]).await;
        if pods[0]["containers"][0]["cpus"].is_number() { Ok(pods) } else { Err(pods) }
    });
    let pods = pods.await;
    assert_eq!(pods[0]["id"], pod);
    let main = &pods[0]["containers"][0];
    assert!(pods[0]["cpus"].as_f64().unwrap() > 0.0 && main["cpus"].as_f64().unwrap() > 0.0, "{pods}");
    assert!(pods[0]["memoryGivenBytes"].as_u64() >= Some(64 << 20), "{pods}");
    assert!(pods[0]["memoryUsedBytes"].as_u64() > main["workingSetBytes"].as_u64(), "{pods}");
}

/// Two pods of one name, as a kubelet makes them of two pods one after the other.
async fn ambiguous(host: &Host, client: &mut Client) {
    let twins = [spec::pod("twin", host.dir()), spec::pod("twin", host.dir())];
    let first = client.run_pod(&twins[0]).await.unwrap();
    let second = client.run_pod(&twins[1]).await.unwrap();
    let (output, text, error) = run(host, &["inspect", "twin"]).await;
    assert_eq!((output.status.code(), text.as_str()), (Some(125), ""));
    assert!(error.contains(&first[..12]) && error.contains(&second[..12]), "{error}");
    client.stop_pod(&first).await.unwrap();
    // Of equal names, the command takes the running one.
    assert_eq!(json(host, &["inspect", "twin"]).await[0]["id"], second);
    for pod in [first, second] {
        client.remove_pod(&pod).await.unwrap();
    }
}

async fn conditions(client: &mut Client) -> Vec<v1::RuntimeCondition> {
    let status = client.runtime.status(v1::StatusRequest::default()).await.unwrap().into_inner();
    let conditions = status.status.unwrap().conditions;
    let ready = conditions.iter().find(|one| one.r#type == "RuntimeReady").unwrap();
    assert!(ready.status, "pods can go on: {conditions:?}");
    conditions
}

/// Waits until the condition has this reason; the empty one if it is true.
async fn turns(client: &mut Client, name: &str, reason: &str) -> String {
    until_seen(format!("the condition {name} to have the reason {reason:?}"), async || {
        let conditions = conditions(client).await;
        let condition = conditions.into_iter().find(|one| one.r#type == name).unwrap();
        assert_eq!(condition.status, condition.reason.is_empty());
        if condition.reason == reason { Ok(condition.message) } else { Err(condition) }
    })
    .await
}

#[tokio::test]
async fn a_node_on_which_pods_go_on_says_what_is_wrong_with_it() {
    let Some(mut host) = Host::start_on_disk(DISK_MIB).await else { return };
    let mut client = host.client();
    for condition in conditions(&mut client).await {
        assert!(condition.status, "{condition:?}");
    }
    let image = client.pull(&host.busybox()).await.unwrap();
    let kept = client.run_pod(&spec::pod("kept", host.dir())).await.unwrap();
    let main = client.run(&kept, spec::shell("main", &image, "exec sleep 100000")).await.unwrap();
    let lost = client.run_pod(&spec::pod("lost", host.dir())).await.unwrap();

    host.disk().fill().unwrap();
    until_seen("the state's disk not to be ready", async || {
        let all = conditions(&mut client).await;
        if all.iter().any(|one| one.r#type == "StateDiskReady" && !one.status) { Ok(()) } else { Err(all) }
    })
    .await;
    let (_, _, warned) = run(&host, &["ps"]).await;
    assert!(warned.contains("podvisor: StateDiskReady does not hold"), "{warned}");
    host.disk().free().unwrap();
    turns(&mut client, "StateDiskReady", "").await;

    // A VM ending without a daemon.
    let vmm = client.vmm(&lost).await.unwrap();
    host.daemon.stop().await.unwrap();
    kill(vmm, Signal::SIGKILL).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    // The command waits until its pod is recovered.
    assert_eq!(client.sh(&main, "echo here").await.unwrap(), "here\n");
    let message = turns(&mut client, "PodsRecovered", "VmsNotFound").await;
    assert!(message.contains("e2e/lost") && !message.contains("e2e/kept"), "{message}");
    client.remove_pod(&lost).await.unwrap();
    turns(&mut client, "PodsRecovered", "").await;
    client.remove_pod(&kept).await.unwrap();
    host.stop().await.unwrap();
}
