//! Measures reads and writes of blocks in each kind of a container's storage, by Debian's fio, beside the
//! same call of fio on the node's own file system below all of the storage.
//!
//! ```text
//!   node       fio ─ ext4
//!   image      fio ─ erofs ─ pages of the store's file, mapped
//!   scratch    fio ─ overlay ─ ext4 ─ virtio-blk ─ a file of the daemon's
//!   emptyDir   fio ─ ext4 ─ virtio-blk ─ a file of the node's ext4
//!   block      fio ─ virtio-blk ─ a loop device over a file of the node's ext4
//!   hostPath   fio ─ virtio-fs ─ the node's ext4
//! ```
//!
//! For each work it prints the cost of one operation on the node, in thousands of instructions if the clock
//! counts them. For each storage it prints the same, and the node's as a ratio of it: 1 is as fast as the
//! node, less is slower.

use std::path::Path;

use anyhow::{Context, ensure};
use proto_cri::v1;
use serde_json::Value;
use tests_e2e::client::Client;
use tests_e2e::disk::Disk;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::loop_device::LoopDevice;
use tests_e2e::{Host, spec};
use tests_registry::{Layer, installed_layer};
use tokio::process::Command;

const FIO: &str = "/usr/bin/fio";
/// The file in the image for reading.
const IN_IMAGE: &str = "/usr/share/blocks";
/// MiB of each file for reading and writing.
const FILE_MIB: u64 = 8;
/// MiB of the file system below everything.
const DISK_MIB: u64 = 1024;
/// Memory of the container, enough to keep all files in the guest's page cache.
pub(crate) const MEMORY_BYTES: i64 = 256 << 20;
/// Timeout of a call, in seconds.
const TIMEOUT_SECONDS: i64 = 1200;
/// Nanoseconds of an instruction under `-icount shift=1`, times the thousand of the printed unit.
pub(crate) const NANOSECONDS_OF_THOUSAND: f64 = 2000.0;

/// One call of fio.
pub(crate) struct Work {
    name: &'static str,
    options: &'static [&'static str],
    /// True if `options` write.
    writes: bool,
    /// True if the file is in the reader's page cache.
    warm: bool,
}

/// Storage in the container, and the file used in it.
struct Place {
    name: &'static str,
    file: &'static str,
}

const PLACES: [Place; 4] = [
    Place { name: "scratch", file: "/root/blocks" },
    Place { name: "emptyDir", file: "/empty-dir/blocks" },
    Place { name: "block", file: "/dev/xvda" },
    Place { name: "hostPath", file: "/shared/blocks" },
];

const RANDOM_READ: &str = "--rw=randread";
const RANDOM_WRITE: &str = "--rw=randwrite";
const SMALL: [&str; 2] = ["--bs=4k", "--io_size=8M"];
const LARGE: [&str; 2] = ["--bs=256k", "--io_size=16M"];

/// Reads one at a time, and 32 at once.
pub(crate) const DEPTHS: [Work; 2] = [
    reads(
        "4 KiB, random, direct, depth 1",
        &[RANDOM_READ, SMALL[0], SMALL[1], "--direct=1", "--ioengine=psync"],
    ),
    reads(
        "4 KiB, random, direct, depth 32",
        &[RANDOM_READ, SMALL[0], SMALL[1], "--direct=1", "--ioengine=libaio", "--iodepth=32"],
    ),
];

const WORKS: [Work; 7] = [
    reads("4 KiB, random, buffered, cold", &[RANDOM_READ, SMALL[0], SMALL[1], "--ioengine=psync"]),
    WARM,
    reads("256 KiB, in order, direct", &["--rw=read", LARGE[0], LARGE[1], "--direct=1", "--ioengine=psync"]),
    writes(
        "4 KiB, random, direct, depth 1",
        &[RANDOM_WRITE, SMALL[0], SMALL[1], "--direct=1", "--ioengine=psync"],
    ),
    writes(
        "4 KiB, random, direct, depth 32",
        &[RANDOM_WRITE, SMALL[0], SMALL[1], "--direct=1", "--ioengine=libaio", "--iodepth=32"],
    ),
    writes(
        "4 KiB, random, buffered, each with fsync",
        &[RANDOM_WRITE, "--bs=4k", "--io_size=512k", "--fsync=1"],
    ),
    writes(
        "256 KiB, in order, direct",
        &["--rw=write", LARGE[0], LARGE[1], "--direct=1", "--ioengine=psync"],
    ),
];

/// The compared work for the image, because the image is read-only.
const WARM: Work = Work {
    name: "4 KiB, random, buffered, warm",
    options: &[RANDOM_READ, SMALL[0], SMALL[1], "--ioengine=psync", "--invalidate=0"],
    writes: false,
    warm: true,
};

const fn reads(name: &'static str, options: &'static [&'static str]) -> Work {
    Work { name, options, writes: false, warm: false }
}

const fn writes(name: &'static str, options: &'static [&'static str]) -> Work {
    Work { name, options, writes: true, warm: false }
}

impl Work {
    pub(crate) fn title(&self) -> String {
        format!("{} of {}", if self.writes { "writes" } else { "reads" }, self.name)
    }

    fn command(&self, file: &str) -> Vec<String> {
        let own = ["--name=blocks", "--output-format=json", "--randseed=1", "--overwrite=1", "--thread=1"];
        let size = format!("--size={FILE_MIB}M");
        let words = [FIO].into_iter().chain(own).chain(self.options.iter().copied());
        words.map(str::to_owned).chain([size, format!("--filename={file}")]).collect()
    }

    /// Thousands of instructions of an operation, by fio's report.
    fn cost(&self, report: &[u8]) -> anyhow::Result<f64> {
        let text = String::from_utf8_lossy(report);
        let from = text.find('{').with_context(|| format!("fio printed {text:?}"))?;
        let report: Value = serde_json::from_str(&text[from..])?;
        let direction = if self.writes { "write" } else { "read" };
        let rate = report.pointer(&format!("/jobs/0/{direction}/iops")).and_then(Value::as_f64);
        let rate = rate.filter(|rate| *rate > 0.0).with_context(|| format!("fio did nothing: {report}"))?;
        Ok(1e9 / rate / NANOSECONDS_OF_THOUSAND)
    }

    /// The cost by the report of a run. For a warm file, an earlier run has read it.
    async fn measured(&self, run: impl AsyncFn() -> anyhow::Result<Vec<u8>>) -> anyhow::Result<f64> {
        if self.warm {
            run().await?;
        }
        self.cost(&run().await?)
    }

    pub(crate) async fn on_node(&self, file: &Path) -> anyhow::Result<f64> {
        let command = self.command(&file.display().to_string());
        let run = async || {
            let output = Command::new(FIO).args(&command[1..]).output().await.context("running fio")?;
            ensure!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr));
            Ok(output.stdout)
        };
        self.measured(run).await
    }

    pub(crate) async fn in_pod(&self, client: &Client, container: &str, file: &str) -> anyhow::Result<f64> {
        let command = self.command(file);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let run = async || {
            let answer: v1::ExecSyncResponse =
                client.clone().exec(container, &words, TIMEOUT_SECONDS).await?;
            let errors = String::from_utf8_lossy(&answer.stderr);
            ensure!(answer.exit_code == 0, "fio on {file} ended with {}: {errors}", answer.exit_code);
            Ok(answer.stdout)
        };
        self.measured(run).await
    }
}

/// Prints each work in each place.
pub(crate) async fn bench(host: &Host) -> anyhow::Result<()> {
    let at = host.dir().join("bench-data");
    let _disk = Disk::mount(&host.dir().join("bench-data.img"), &at, DISK_MIB, &[])?;
    let (own, shared) = (at.join("node"), at.join("shared"));
    for directory in [&own, &shared] {
        std::fs::create_dir(directory)?;
    }
    let own = own.join("blocks");
    let block = LoopDevice::make(at.join("block.img"), FILE_MIB << 20)?;
    let mut client = host.client();
    let image = image(host, &mut client).await?;
    let config = spec::pod("data", host.dir());
    let mut volumes = KubeletVolumes::below(&at, &config)?;
    let empty_dir = volumes.disk("data", 0o777, 0)?;
    let pod = client.run_pod(&config).await.context("running a pod")?;
    let mut main = spec::with_memory(
        spec::confined(spec::container("main", &image, &["sleep", "1000000"])),
        MEMORY_BYTES,
    );
    main.mounts = vec![mounted(&empty_dir, "/empty-dir"), mounted(&shared, "/shared")];
    main.devices = vec![v1::Device {
        host_path: block.device().display().to_string(),
        container_path: "/dev/xvda".into(),
        permissions: "rwm".into(),
    }];
    let container = client.run(&pod, main).await?;
    for work in DEPTHS.iter().chain(&WORKS) {
        let node = work.on_node(&own).await?;
        let mut line = Vec::new();
        let read_only = Place { name: "image", file: IN_IMAGE };
        for Place { name, file } in PLACES.iter().chain(work.warm.then_some(&read_only)) {
            let cost = work.in_pod(&client, &container, file).await?;
            line.push(format!("{name} {cost:.1} k, {:.3}", node / cost));
        }
        println!("bench: {}: node {node:.1} k instructions; {}", work.title(), line.join("; "));
    }
    client.remove_pod(&pod).await?;
    Ok(())
}

pub(crate) async fn image(host: &Host, client: &mut Client) -> anyhow::Result<String> {
    let (mut layers, config) = tests_registry::busybox_image()?;
    layers.push(installed_layer(&[FIO])?);
    let blocks = vec![0x5a; (FILE_MIB << 20) as usize];
    layers.push(Layer::builder().file(IN_IMAGE.trim_start_matches('/'), 0o644, blocks).build());
    host.registry.push_image("bench/fio", "1", layers, config).await?;
    Ok(client.pull(&host.image("bench/fio:1")).await?)
}
