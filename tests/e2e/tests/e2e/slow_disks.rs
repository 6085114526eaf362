//! Volumes on a slow disk of the node.

use std::time::Duration;

use tests_e2e::disk::in_software_node;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::slow_device::SlowDevice;
use tests_e2e::{Host, spec};

/// The disk's time for a request: as long as a guest needs to start a few programs.
const LATENCY: Duration = Duration::from_millis(200);
/// Programs reading at once.
const READERS: usize = 6;
/// Reads of one program, one after the other: they take longer than a loaded node needs to start the next
/// program.
const READS: usize = 4;
/// Timeout of a command, in seconds.
const TIMEOUT_SECONDS: i64 = 600;

/// The most reads in progress on the disk at one time, polled until the end of `command`.
async fn most_reads_at_once<T>(device: &SlowDevice, command: impl Future<Output = T>) -> (T, u32) {
    let mut most = 0;
    tokio::pin!(command);
    loop {
        tokio::select! {
            answer = &mut command => return (answer, most),
            () = tokio::time::sleep(Duration::from_millis(2)) => most = most.max(device.reads_at_work().unwrap()),
        }
    }
}

#[tokio::test]
async fn reads_of_one_volume_wait_for_a_slow_disk_together() {
    // It takes a device of the node, and its page cache.
    if !in_software_node() {
        return;
    }
    let Some(host) = Host::start().await else { return };
    let at = host.dir().join("slow");
    let device = SlowDevice::mount(&at, LATENCY).unwrap();
    let shared = at.join("shared");
    std::fs::create_dir(&shared).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("slow", host.dir());
    let mut volumes = KubeletVolumes::below(&at, &config).unwrap();
    let empty_dir = volumes.disk("data", 0o777, 0).unwrap();
    let pod = client.run_pod(&config).await.unwrap();
    let mut main = spec::container("main", &image, &["sleep", "100000"]);
    main.mounts = vec![mounted(&empty_dir, "/empty-dir"), mounted(&shared, "/shared")];
    let container = client.run(&pod, main).await.unwrap();
    for volume in ["/empty-dir", "/shared"] {
        // Places far from each other, each with its own content.
        let write = format!(
            "for n in $(seq {}); do echo $n | dd of={volume}/file bs=64k seek=$n conv=notrunc,sync; done; sync",
            READERS * READS
        );
        let answer = client.exec(&container, &["sh", "-c", &write], TIMEOUT_SECONDS).await.unwrap();
        assert_eq!(answer.exit_code, 0, "{}", String::from_utf8_lossy(&answer.stderr));
        device.forget_cached().unwrap();
        let read = format!(
            "for first in $(seq {READERS}); do \
               (for n in $(seq $first {READERS} {}); do dd if={volume}/file bs=4k iflag=direct count=1 skip=$((n * 16)) | head -n 1; done) & \
             done; wait",
            READERS * READS
        );
        let words = ["sh", "-c", &read];
        let (answer, most) =
            most_reads_at_once(&device, client.exec(&container, &words, TIMEOUT_SECONDS)).await;
        let output = String::from_utf8(answer.unwrap().stdout).unwrap();
        let mut numbers: Vec<usize> = output.lines().map(|line| line.parse().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=READERS * READS).collect::<Vec<_>>(), "{volume}");
        assert!(most > 1, "{volume}: reads waited for each other");
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
