//! A reload of the configuration by a real daemon with a running pod: changed values, a key waiting for a
//! restart, a wrong file, and a changed level of the log.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto_cri::v1;
use serde_json::Value;
use tests_e2e::wait::{until, until_seen};
use tests_e2e::{Host, http, spec};
use tokio::process::Command;

const ADDRESS: &str = "127.0.0.1";
const PORT: u16 = 9135;

/// Runs `podvisor config`, and returns its success and output.
async fn config(host: &Host, arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(host.daemon.binary());
    command.arg("--config").arg(host.daemon.config()).arg("config").args(arguments);
    // The command's own environment is not the daemon's.
    let output = command.env_remove("PODVISOR_LOG").output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

async fn report(host: &Host) -> Value {
    let (_, out, err) = config(host, &["-o", "json"]).await;
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
}

fn key<'a>(report: &'a Value, key: &str) -> &'a Value {
    report["keys"].as_array().unwrap().iter().find(|one| one["key"] == key).unwrap()
}

/// Sends SIGHUP, and waits until the log has `count` such lines at the end of a reload.
async fn reload(host: &Host, line: &str, count: usize) {
    kill(Pid::from_raw(i32::try_from(host.daemon.pid()).unwrap()), Signal::SIGHUP).unwrap();
    host.daemon.logs(line, count).await;
}

/// Waits for a figure, since the log has its line a moment before the figures have theirs.
async fn figure(line: &str) {
    let name = line.split(' ').next().unwrap();
    until_seen(format!("the figure {line:?}"), async || {
        let figures = http::get_path(ADDRESS, PORT, "/metrics").await.unwrap();
        let found = figures.lines().find(|figure| figure.split(' ').next() == Some(name)).map(str::to_owned);
        if found.as_deref() == Some(line) { Ok(()) } else { Err(found) }
    })
    .await;
}

fn write(path: &Path, text: &str) {
    // As an editor does it: the file is never half-written.
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, path).unwrap();
}

/// With the colon before the message: another line is of each key, `a key of the configuration is reloaded`.
const RELOADED: &str = ": the configuration is reloaded";
const REFUSED: &str = "the configuration is not reloaded, and the one before stays in force";

#[tokio::test]
async fn a_running_pod_outlives_reloads_and_each_says_what_it_did() {
    let Some(mut host) = Host::start().await else { return };
    let path = host.daemon.config().to_owned();
    let before = std::fs::read_to_string(&path).unwrap() + "[log]\nlevel = \"info\"\n";
    write(&path, &before);
    host.daemon.kill_and_restart().await.unwrap();
    // The log has the lines of the daemon before, too.
    let own = host.daemon.log().len();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("stays", host.dir())).await.unwrap();
    let main = client.run(&pod, spec::shell("main", &image, "exec sleep 100000")).await.unwrap();

    // An edit alone changes nothing, and is shown.
    let after = before.replace("level = \"info\"", "level = \"info,runtime_cri=debug\"")
        + &format!("[metrics]\naddress = \"{ADDRESS}:{PORT}\"\n[streaming]\naddress = \"127.0.0.1:10011\"\n")
        + "[[handler]]\nname = \"small\"\nmemory_mib = 64\nscratch_mib = 1024\n";
    write(&path, &after);
    let shown = report(&host).await;
    assert_eq!(shown["daemon"]["pid"], host.daemon.pid());
    let level = key(&shown, "log.level");
    assert_eq!((&level["value"], &level["in_file"]["counts_after"]), (&"info".into(), &"reload".into()));
    assert_eq!(key(&shown, "streaming.address")["in_file"]["counts_after"], "restart");
    let no_handler = client.run_pod_on(&spec::pod("small", host.dir()), "small").await.unwrap_err();
    assert!(no_handler.message().contains("no handler \"small\" here"), "{no_handler:?}");

    // Reloaded, the new handler has pods, figures are served, and the log says more.
    assert!(!host.daemon.log()[own..].contains("answered"), "{}", host.daemon.log());
    reload(&host, RELOADED, 1).await;
    let log = host.daemon.log();
    assert!(log.contains("a key of the configuration needs a restart"), "{log}");
    assert!(log.contains("streaming.address"), "{log}");
    let small = client.run_pod_on(&spec::pod("small", host.dir()), "small").await.unwrap();
    figure("podvisor_config_last_reload_successful 1").await;
    figure("podvisor_config_restart_pending_keys 1").await;
    let log = host.daemon.log();
    let started = log[own..].lines().find(|line| line.contains("answered") && line.contains("RunPodSandbox"));
    assert!(started.is_some_and(|line| line.contains(&small) && line.contains("call=")), "{log}");
    let shown = report(&host).await;
    assert_eq!(key(&shown, "log.level")["value"], "info,runtime_cri=debug");
    assert_eq!(key(&shown, "handler.small.memory_mib")["value"], 64);
    assert_eq!(key(&shown, "streaming.address")["value"], "127.0.0.1:0");

    // A wrong file leaves all of it in force.
    write(&path, &format!("{after}memory_mibs = 1\n"));
    let line = after.lines().count() + 1;
    reload(&host, REFUSED, 1).await;
    let place = format!("{}, line {line}: handler[1].memory_mibs", path.display());
    assert!(host.daemon.log().contains(&place), "{place}: {}", host.daemon.log());
    figure("podvisor_config_last_reload_successful 0").await;
    let (succeeded, out, err) = config(&host, &[]).await;
    assert!(!succeeded && err.contains(&place), "{err}");
    assert!(out.contains("The last reload was refused") && out.contains("memory_mib = 64"), "{out}");
    client.stop_pod(&small).await.unwrap();
    client.remove_pod(&small).await.unwrap();
    let again = client.run_pod_on(&spec::pod("again", host.dir()), "small").await.unwrap();

    // Put back, the handler is gone, its pod and the first one are not, and nothing waits for a restart.
    write(&path, &before);
    let check = Command::new(host.daemon.binary())
        .args(["--config".as_ref(), path.as_os_str(), "check".as_ref()])
        .output()
        .await
        .unwrap();
    let check = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.contains("note  configuration in force: the last reload was refused"), "{check}");
    reload(&host, RELOADED, 2).await;
    assert_eq!(client.sh(&main, "echo here").await.unwrap(), "here\n");
    assert!(client.pod_ip(&again).await.is_ok());
    let refused = client.run_pod_on(&spec::pod("late", host.dir()), "small").await.unwrap_err();
    assert!(refused.message().contains("no handler"), "{refused:?}");
    until("figures not to be served", async || http::ask(ADDRESS, PORT, "/metrics").await.is_err()).await;
    let (succeeded, out, err) = config(&host, &[]).await;
    assert!(succeeded && !out.contains("another value in the file"), "{out}{err}");
    for pod in [&pod, &again] {
        client.stop_pod(pod).await.unwrap();
        client.remove_pod(pod).await.unwrap();
    }
    host.stop().await.unwrap();
}

/// Returns true if the only image of the host is reported as pinned.
async fn is_pinned(host: &Host) -> bool {
    let request = v1::ListImagesRequest::default();
    let listed = host.client().images.list_images(request).await.unwrap().into_inner().images;
    assert_eq!(listed.len(), 1, "{listed:?}");
    listed[0].pinned
}

#[tokio::test]
async fn images_are_pinned_as_a_reload_has_it() {
    let Some(host) = Host::start().await else { return };
    let image = host.client().pull(&host.busybox()).await.unwrap();
    assert!(!is_pinned(&host).await);
    let path = host.daemon.config().to_owned();
    let before = std::fs::read_to_string(&path).unwrap();
    let with = |names: &str| before.replace("[registries]\n", &format!("[registries]\npinned = [{names}]\n"));
    for (count, (names, expected)) in [
        (format!("{:?}", host.busybox()), true),
        ("\"registry.k8s.io/*\"".to_owned(), false),
        (format!("\"{}/*\"", host.registry.addr), true),
    ]
    .into_iter()
    .enumerate()
    {
        write(&path, &with(&names));
        reload(&host, RELOADED, count + 1).await;
        assert_eq!(is_pinned(&host).await, expected, "{names}: {}", host.daemon.log());
    }
    // An invalid name is refused; and the kubelet decides about removals.
    write(&path, &with("\"*\""));
    reload(&host, REFUSED, 1).await;
    let mut client = host.client();
    let image = Some(v1::ImageSpec { image, ..Default::default() });
    client.images.remove_image(v1::RemoveImageRequest { image }).await.unwrap();
    host.stop().await.unwrap();
}
