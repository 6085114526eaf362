//! Measures reads of files on a slow disk of the node, by fio in a container and, in the same run, by the
//! same call on the node itself: 1 is as fast as the node, less is slower. A single request waits for the
//! disk either way. If a program issues many at once, a pod's requests must wait in parallel, like the
//! node's.
//!
//! ```text
//!   node       fio ─ ext4 ─ the slow disk
//!   emptyDir   fio ─ ext4 ─ virtio-blk ─ a file of that ext4
//!   hostPath   fio ─ virtio-fs ─ that ext4
//! ```

use std::time::Duration;

use anyhow::Context;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::slow_device::SlowDevice;
use tests_e2e::{Host, spec};

use crate::data::{DEPTHS, MEMORY_BYTES, NANOSECONDS_OF_THOUSAND, image};

/// The disk's time for a request: like a cloud's network disk.
const LATENCY: Duration = Duration::from_micros(500);

/// Prints each work in each place.
pub(crate) async fn bench(host: &Host) -> anyhow::Result<()> {
    let at = host.dir().join("bench-slow-disk");
    let device = SlowDevice::mount(&at, LATENCY)?;
    let (own, shared) = (at.join("node"), at.join("shared"));
    for directory in [&own, &shared] {
        std::fs::create_dir(directory)?;
    }
    let own = own.join("blocks");
    let mut client = host.client();
    let image = image(host, &mut client).await?;
    let config = spec::pod("slow-disk", host.dir());
    let mut volumes = KubeletVolumes::below(&at, &config)?;
    let empty_dir = volumes.disk("data", 0o777, 0)?;
    let pod = client.run_pod(&config).await.context("running a pod")?;
    let mut main = spec::with_memory(
        spec::confined(spec::container("main", &image, &["sleep", "1000000"])),
        MEMORY_BYTES,
    );
    main.mounts = vec![mounted(&empty_dir, "/empty-dir"), mounted(&shared, "/shared")];
    let container = client.run(&pod, main).await?;
    for work in &DEPTHS {
        // The first call makes the file.
        work.on_node(&own).await?;
        device.forget_cached()?;
        let node = work.on_node(&own).await?;
        let mut line = Vec::new();
        for (name, file) in [("emptyDir", "/empty-dir/blocks"), ("hostPath", "/shared/blocks")] {
            work.in_pod(&client, &container, file).await?;
            device.forget_cached()?;
            let pod = work.in_pod(&client, &container, file).await?;
            line.push(format!("{name} {:.0} µs, {:.3}", micros(pod), node / pod));
        }
        let (title, latency) = (work.title(), LATENCY.as_micros());
        println!(
            "bench: {title}, a disk that takes {latency} µs: node {:.0} µs; {}",
            micros(node),
            line.join("; ")
        );
    }
    client.remove_pod(&pod).await?;
    Ok(())
}

/// Microseconds of a cost in thousands of instructions, by the counting clock.
fn micros(cost: f64) -> f64 {
    cost * NANOSECONDS_OF_THOUSAND / 1e3
}
