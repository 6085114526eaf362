//! Measures work on files in a pod's volumes, as a ratio to the same work by the same program on the node's
//! own file system below the volumes: 1 is as fast as there, less is slower.
//!
//! ```text
//!   node       busybox ─ ext4
//!   emptyDir   busybox ─ ext4 ─ virtio-blk ─ a file of that ext4
//!   hostPath   busybox ─ virtio-fs ─ that ext4
//!   layer      busybox ─ overlay ─ ext4 ─ virtio-blk ─ a file of the daemon's
//! ```
//!
//! The cost of the loop, and of the call running it, is subtracted on either side.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::disk::Disk;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::{Host, spec};
use tokio::process::Command;

use crate::median::median;

/// Small files to make, read and remove.
const FILES: u32 = 2000;
/// MiB written and read in one go.
const STREAM_MIB: u32 = 32;
/// MiB of the file system below everything.
const DISK_MIB: u64 = 1024;
/// Rounds, of each place in turn.
const ROUNDS: usize = 3;
/// Timeout of a call, in seconds.
const TIMEOUT_SECONDS: i64 = 1200;

/// The project's aim: the least ratio for small files on an emptyDir.
const AIM: f64 = 0.5;

/// Work in a directory, as lines of shell: the measured one, and one with everything except the work.
struct Work {
    name: &'static str,
    line: String,
    idle: String,
}

/// Prints the ratio of each kind of work in each place.
pub(crate) async fn bench(host: &Host) -> anyhow::Result<()> {
    let at = host.dir().join("bench-volumes");
    let _disk = Disk::mount(&host.dir().join("bench-volumes.img"), &at, DISK_MIB, &[])?;
    let (node, shared) = (at.join("node"), at.join("shared"));
    for directory in [&node, &shared] {
        std::fs::create_dir(directory)?;
    }
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await?;
    let config = spec::pod("volumes", host.dir());
    let mut volumes = KubeletVolumes::below(&at, &config)?;
    let empty_dir = volumes.disk("data", 0o777, 0)?;
    let pod = client.run_pod(&config).await.context("running a pod")?;
    let mut main = spec::confined(spec::container("main", &image, &["sleep", "1000000"]));
    main.mounts = vec![mounted(&empty_dir, "/empty-dir"), mounted(&shared, "/shared")];
    let container = client.run(&pod, main).await?;
    for work in works() {
        let mut on_node = Vec::new();
        let mut places = [("emptyDir", "/empty-dir"), ("hostPath", "/shared"), ("layer", "/root")]
            .map(|(name, directory)| (name, directory, Vec::new()));
        for _ in 0..ROUNDS {
            on_node.push(of_node(&work, &node).await?);
            for (_, directory, took) in &mut places {
                took.push(in_pod(&mut client, &container, &work, directory).await?);
            }
        }
        let own = median(&mut on_node).as_secs_f64();
        let ratios =
            places.map(|(name, _, mut took)| format!("{name} {:.3}", own / median(&mut took).as_secs_f64()));
        println!(
            "bench: {} over the node's own ext4 (small files on emptyDir aim at {AIM}): {}",
            work.name,
            ratios.join(", ")
        );
    }
    client.remove_pod(&pod).await?;
    Ok(())
}

fn works() -> [Work; 3] {
    let each = |command: &str| format!("i=0; while [ $i -lt {FILES} ]; do {command}; i=$((i+1)); done");
    let stream = |line: &str, name| Work { name, line: line.to_owned(), idle: ":".to_owned() };
    [
        Work {
            name: "2,000 small files, made, read and removed",
            line: format!("{}; {}; rm f*", each("echo $i >f$i"), each("read line <f$i")),
            idle: format!("{}; {}", each("echo $i >/dev/null"), each("read line </dev/null")),
        },
        stream(
            &format!("dd if=/dev/zero of=big bs=1M count={STREAM_MIB} conv=fsync 2>/dev/null"),
            "32 MiB written in MiB, one at a time, buffered, with fsync at the end",
        ),
        stream(
            "dd if=big of=/dev/null bs=1M 2>/dev/null",
            "32 MiB read in MiB, one at a time, buffered, warm",
        ),
    ]
}

async fn of_node(work: &Work, directory: &Path) -> anyhow::Result<Duration> {
    let run = async |line: &str| {
        let begun = Instant::now();
        let status = Command::new("busybox").args(["sh", "-c", line]).current_dir(directory).status().await?;
        ensure!(status.success(), "{line:?} ended with {status} on the node");
        anyhow::Ok(begun.elapsed())
    };
    Ok(run(&work.line).await?.saturating_sub(run(&work.idle).await?))
}

async fn in_pod(
    client: &mut Client,
    container: &str,
    work: &Work,
    directory: &str,
) -> anyhow::Result<Duration> {
    let mut run = async |line: &str| {
        let line = format!("cd {directory} && {{ {line}; }}");
        let begun = Instant::now();
        let answer: v1::ExecSyncResponse =
            client.exec(container, &["sh", "-c", &line], TIMEOUT_SECONDS).await?;
        let took = begun.elapsed();
        ensure!(answer.exit_code == 0, "{line:?} ended with {}", answer.exit_code);
        anyhow::Ok(took)
    };
    Ok(run(&work.line).await?.saturating_sub(run(&work.idle).await?))
}
