//! The guest's clock against the host's.

use std::time::{SystemTime, UNIX_EPOCH};

use proto_cri::v1;
use serde_json::Value;
use tests_e2e::client::Client;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};

const SECOND_NS: i64 = 1_000_000_000;
/// Offset for a pod's clock, in seconds.
const OFF_SECONDS: u64 = 7200;

/// The clock as PodSandboxStatus shows it. Asking sends the guest the host's time, too.
async fn clock(client: &mut Client, pod: &str) -> Value {
    client.pod_info(pod, "/clock").await.unwrap()["clock"].clone()
}

#[tokio::test]
async fn a_clock_that_is_set_off_in_the_pod_comes_back_to_the_hosts() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("clock", host.dir())).await.unwrap();
    let mut config = spec::container("main", &image, &["sleep", "3600"]);
    let context = config.linux.get_or_insert_default().security_context.get_or_insert_default();
    let added = vec!["SYS_TIME".to_owned()];
    context.capabilities = Some(v1::Capability { add_capabilities: added, ..Default::default() });
    let container = client.run(&pod, config).await.unwrap();

    let shown = clock(&mut client, &pod).await;
    assert_eq!(shown["steps"], 0, "{shown}");
    assert!(shown["offset_ns"].as_i64().unwrap().abs() < SECOND_NS, "{shown}");
    eprintln!("the guest's clock follows {}", shown["reference"]);

    let set = format!("date -s @$(( $(date +%s) + {OFF_SECONDS} ))");
    assert!(!client.sh(&container, &set).await.unwrap().is_empty());
    until_seen("a step of the guest's clock", async || {
        let shown = clock(&mut client, &pod).await;
        if shown["steps"] == 0 { Err(shown) } else { Ok(()) }
    })
    .await;
    let guest: u64 = client.sh(&container, "date +%s").await.unwrap().trim().parse().unwrap();
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(here.abs_diff(guest) < OFF_SECONDS / 2, "{guest} in the guest, {here} here");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
