//! Programs read back their own writes, in every kind of a container's storage, during writes to all of them.

use std::path::Path;
use std::time::Instant;

use proto_cri::v1;
use serde_json::Value;
use tests_e2e::client::Client;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::loop_device::LoopDevice;
use tests_e2e::{Host, spec};
use tests_registry::installed_layer;

use crate::load::size;

/// Debian's fio: it writes blocks with checksums of their content and reads them again.
const FIO: &str = "/usr/bin/fio";
/// MiB of each repeatedly written file, and of the disk.
const FILE_MIB: [usize; 3] = [4, 16, 16];
/// After so many seconds no new round begins; there is at least one.
const SECONDS: [usize; 3] = [0, 300, 1800];
/// Longest duration of a round in seconds, however slow the node is.
const ROUND_SECONDS: i64 = 1200;

/// A target of writes: a file in a directory, or a whole disk.
struct Place {
    name: &'static str,
    file: &'static str,
    /// True if the guest's page cache is bypassed.
    direct: bool,
}

/// The targets of each of the pods. Both write below `/shared`, each to its own file.
const FIRST: [Place; 4] = [
    Place { name: "scratch", file: "/written", direct: false },
    Place { name: "emptyDir", file: "/empty-dir/written", direct: true },
    Place { name: "hostPath", file: "/shared/first", direct: false },
    Place { name: "block", file: "/dev/xvda", direct: true },
];
const SECOND: [Place; 2] = [
    Place { name: "scratch", file: "/written", direct: true },
    Place { name: "hostPath", file: "/shared/second", direct: false },
];

/// One call of fio, writing to all targets at once: blocks of many sizes in random order, a sync now and
/// then, and comparing reads, both soon after the write and at the end.
fn command(places: &[Place], seed: usize) -> Vec<String> {
    let (whole, seed) = (format!("--size={}M", size(FILE_MIB)), format!("--randseed={seed}"));
    let options = [
        FIO,
        "--output-format=json",
        "--ioengine=psync",
        "--rw=randwrite",
        "--bsrange=4k-64k",
        "--fsync=32",
        "--verify=crc32c",
        "--verify_backlog=128",
        "--verify_fatal=1",
        "--verify_state_save=0",
        &whole,
        &seed,
    ];
    let mut command = options.map(str::to_owned).to_vec();
    for Place { name, file, direct } in places {
        command.push(format!("--name={name}"));
        command.push(format!("--filename={file}"));
        command.push(format!("--direct={}", u8::from(*direct)));
    }
    command
}

/// One round in a container. Each place must have been written, read and found without an error.
async fn round(client: &mut Client, container: &str, places: &[Place], number: usize) {
    let command = command(places, number + 1);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let answer = client.exec(container, &words, ROUND_SECONDS).await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&answer.stdout), String::from_utf8_lossy(&answer.stderr));
    assert_eq!(answer.exit_code, 0, "{out}{err}");
    let report: Value = serde_json::from_str(&out[out.find('{').unwrap()..]).unwrap();
    let jobs = report["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), places.len(), "{out}");
    for job in jobs {
        let figure = |pointer: &str| job.pointer(pointer).and_then(Value::as_u64).unwrap();
        let (written, read, error) = (figure("/write/io_bytes"), figure("/read/io_bytes"), figure("/error"));
        eprintln!("round {number}: {}: {written} bytes written, {read} read and compared", job["jobname"]);
        assert!(error == 0 && written > 0 && read > 0, "{job}");
    }
}

async fn image(host: &Host, client: &mut Client) -> String {
    let (mut layers, config) = tests_registry::busybox_image().unwrap();
    layers.push(installed_layer(&[FIO]).unwrap());
    host.registry.push_image("e2e/fio", "1", layers, config).await.unwrap();
    client.pull(&host.image("e2e/fio:1")).await.unwrap()
}

fn writer(image: &str, mounts: Vec<v1::Mount>, disk: Option<&Path>) -> v1::ContainerConfig {
    let device = |path: &Path| v1::Device {
        host_path: path.display().to_string(),
        container_path: "/dev/xvda".into(),
        permissions: "rwm".into(),
    };
    let devices = disk.map(device).into_iter().collect();
    let config = spec::container("writer", image, &["sleep", "1000000"]);
    spec::with_memory(v1::ContainerConfig { mounts, devices, ..config }, 256 << 20)
}

#[tokio::test]
async fn all_that_two_pods_write_at_once_is_read_as_it_was_written() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = image(&host, &mut client).await;
    let shared = host.dir().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let disk = LoopDevice::make(host.dir().join("disk.img"), (size(FILE_MIB) as u64) << 20).unwrap();

    let config = spec::pod("first", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let empty_dir = volumes.disk("data", 0o777, 0).unwrap();
    let first = client.run_pod(&config).await.unwrap();
    let mounts = vec![mounted(&empty_dir, "/empty-dir"), mounted(&shared, "/shared")];
    let one = client.run(&first, writer(&image, mounts, Some(disk.device()))).await.unwrap();
    let second = client.run_pod(&spec::pod("second", host.dir())).await.unwrap();
    let other = client.run(&second, writer(&image, vec![mounted(&shared, "/shared")], None)).await.unwrap();

    let mut own = host.client();
    let begun = Instant::now();
    for number in 0.. {
        tokio::join!(round(&mut client, &one, &FIRST, number), round(&mut own, &other, &SECOND, number));
        if begun.elapsed().as_secs() >= size(SECONDS) as u64 {
            println!("{} rounds in {} s without an error", number + 1, begun.elapsed().as_secs());
            break;
        }
    }
    client.remove_pod(&first).await.unwrap();
    client.remove_pod(&second).await.unwrap();
    host.stop().await.unwrap();
}
