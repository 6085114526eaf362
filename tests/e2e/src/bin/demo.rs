//! `make demo`: a pod of two containers in its own VM, from an image pulled out of a local registry. Shows
//! the main features to a newcomer, and at the end looks for leftovers.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, ensure};
use clap::Parser;
use tests_e2e::built::Built;
use tests_e2e::client::Client;
use tests_e2e::idle::Idle;
use tests_e2e::traces::Traces;
use tests_e2e::wait::{WITHIN, within};
use tests_e2e::{Host, http, spec};

/// Port of the demo's web server inside the pod.
const WEB_PORT: u16 = 8080;

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    built: Built,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    match demo(&args.built).await {
        Ok(()) => {
            println!("demo: passed, nothing left behind");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("demo: failed: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn demo(built: &Built) -> anyhow::Result<()> {
    let host = Host::with(built).await?;
    let before = Traces::take(host.dir())?;
    let outcome = show(&host).await;
    if outcome.is_err() {
        eprintln!("--- the daemon's log\n{}", host.daemon.log());
    }
    outcome?;
    let dir = host.dir().to_owned();
    // The pools go with the daemon.
    host.stop().await?;
    let left = Traces::take(&dir)?.since(&before);
    ensure!(left.is_empty(), "left behind: {left:#?}");
    Ok(())
}

async fn show(host: &Host) -> anyhow::Result<()> {
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.context("pulling")?;
    say("image", &format!("{} is {}", host.busybox(), &image[..19]));

    let config = spec::pod("demo", host.dir());
    let logs = PathBuf::from(&config.log_directory);
    let pod = client.run_pod(&config).await.context("running the pod")?;
    let web = spec::shell(
        "web",
        &image,
        &format!(
            "mkdir -p /www && echo hello from the pod > /www/index.html && exec busybox httpd -f -p {WEB_PORT} -h /www"
        ),
    );
    client.run(&pod, web).await.context("starting the web container")?;
    let talker = spec::shell("talker", &image, "echo $(hostname) says hello; exec sleep 3600");
    let talker = client.run(&pod, talker).await.context("starting the second container")?;

    kernels(&mut client, &talker).await?;
    let ip = client.pod_ip(&pod).await?;
    let page = http::get(&ip, WEB_PORT).await.context("asking the pod's web server from the host")?;
    say("network", &format!("http://{ip}:{WEB_PORT}/ answers the host: {}", page.trim()));
    log_line(&logs).await?;
    let processes = client.sh(&talker, "ps | wc -l").await?;
    say(
        "ExecSync",
        &format!("the second container sees {} lines of ps, not the first one's", processes.trim()),
    );
    phases(&mut client, &pod).await?;
    client.stop_pod(&pod).await.context("stopping the pod")?;
    client.remove_pod(&pod).await.context("removing the pod")?;
    say("stop", "the pod is gone");
    idle_pod(host, &mut client, &image).await
}

async fn kernels(client: &mut Client, container: &str) -> anyhow::Result<()> {
    let host = nix::sys::utsname::uname()?.release().to_string_lossy().into_owned();
    let pod = client.sh(container, "uname -r").await?;
    say("kernels", &format!("host {host} | pod {}", pod.trim()));
    ensure!(host != pod.trim(), "the pod runs on the host's kernel");
    Ok(())
}

async fn log_line(logs: &std::path::Path) -> anyhow::Result<()> {
    let path = logs.join("talker.log");
    let line = within(WITHIN, async || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.split_once('\n').map(|(line, _)| line.to_owned()).ok_or(text)
    });
    let line = line.await.map_err(|text| anyhow!("{} has no whole line: {text:?}", path.display()))?;
    ensure!(line.ends_with("stdout F demo says hello"), "unexpected log line {line:?}");
    say("log", &line);
    Ok(())
}

async fn phases(client: &mut Client, pod: &str) -> anyhow::Result<()> {
    let (_, info) = client.pod_status_verbose(pod).await?;
    let phases = info["phases"].as_array().context("the verbose status has no phases")?;
    ensure!(!phases.is_empty(), "no phase was measured");
    for phase in phases {
        let ms = |key: &str| phase[key].as_f64().unwrap_or(f64::NAN);
        let name = phase["name"].as_str().unwrap_or("?");
        say("phase", &format!("{name:<12} from {:8.1} ms  for {:8.1} ms", ms("start_ms"), ms("duration_ms")));
    }
    Ok(())
}

/// Prints the host's cost of a pod of 128 MiB with one sleeping `sleep`.
async fn idle_pod(host: &Host, client: &mut Client, image: &str) -> anyhow::Result<()> {
    let pod = client.run_pod(&spec::pod("idle", host.dir())).await?;
    client.run(&pod, spec::container("sleep", image, &["sleep", "3600"])).await?;
    let vmm = client.vmm(&pod).await?;
    let info = client.pod_info(&pod, "/guest").await?;
    let idle = Idle::measure(u32::try_from(vmm.as_raw())?).await?;
    let guest_kib =
        info["guest"]["used_bytes"].as_u64().context("the verbose status has no guest memory")? / 1024;
    say(
        "idle pod",
        &format!("VMM PSS {} KiB, of which {} KiB anonymous: RAM", idle.pss_kib, idle.pss_anonymous_kib),
    );
    say("idle pod", &format!("the guest uses {guest_kib} KiB of its memory"));
    for thread in &idle.threads {
        say(
            "idle pod",
            &format!("thread {:<16} woke {:5.1} times a second", thread.name, thread.wakeups_per_second),
        );
    }
    ensure!(idle.busiest() <= Idle::WAKEUPS_PER_SECOND_MAX, "a thread of an idle VMM wakes too often");
    client.stop_pod(&pod).await?;
    client.remove_pod(&pod).await?;
    Ok(())
}

fn say(what: &str, text: &str) {
    println!("demo: {what:<9} {text}");
}
