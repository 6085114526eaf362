//! The cost of RuntimeDefault's filter for calls starting processes: CreateContainer and ExecSync, with and
//! without it, in turns.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};

use crate::figures::millions;
use crate::median::median;

/// Counted rounds, after one for cold caches, such as the profile's compilation.
const ROUNDS: usize = 8;

/// Timeout of a command, in seconds.
const TIMEOUT_SECONDS: i64 = 600;

/// Largest cost of the filter, in millions of instructions.
const AIM_MILLIONS: f64 = 2.0;

/// Prints the medians of both calls, and the filter's cost.
pub(crate) async fn bench(host: &Host) -> anyhow::Result<()> {
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await?;
    let pod = client.run_pod(&spec::pod("confined", host.dir())).await.context("running a pod")?;
    let plain = spec::container("plain", &image, &["sleep", "1000000"]);
    let confined = spec::confined(spec::container("confined", &image, &["sleep", "1000000"]));
    let mut created = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for (config, times) in [&plain, &confined].into_iter().zip(&mut created) {
            let (time, container) = create(&mut client, &pod, config).await?;
            client.runtime.remove_container(v1::RemoveContainerRequest { container_id: container }).await?;
            if round > 0 {
                times.push(time);
            }
        }
    }
    print("CreateContainer", created);
    let containers = [client.run(&pod, plain).await?, client.run(&pod, confined).await?];
    let mut executed = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for (container, times) in containers.iter().zip(&mut executed) {
            let begun = Instant::now();
            let answer = client.exec(container, &["/bin/true"], TIMEOUT_SECONDS).await?;
            ensure!(answer.exit_code == 0, "the command ended with {}", answer.exit_code);
            if round > 0 {
                times.push(begun.elapsed());
            }
        }
    }
    print("ExecSync", executed);
    client.remove_pod(&pod).await?;
    Ok(())
}

async fn create(
    client: &mut Client,
    pod: &str,
    config: &v1::ContainerConfig,
) -> anyhow::Result<(Duration, String)> {
    let begun = Instant::now();
    let container = client.create(pod, config.clone()).await?;
    Ok((begun.elapsed(), container))
}

fn print(call: &str, [mut plain, mut confined]: [Vec<Duration>; 2]) {
    let (plain, confined) = (millions(median(&mut plain)), millions(median(&mut confined)));
    println!(
        "bench: {call}: {plain:.2} M instructions unconfined, {confined:.2} M under RuntimeDefault, {:+.2} M (aim: under {AIM_MILLIONS} M)",
        confined - plain,
    );
}
