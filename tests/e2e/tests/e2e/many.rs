//! Many pods at once, and how they slow each other.

use std::collections::BTreeSet;
use std::time::Instant;

use proto_cri::v1;
use tests_e2e::{Host, spec};

/// Pods started at once.
const PODS: usize = 20;

#[tokio::test]
async fn twenty_pods_asked_for_at_once_all_become_ready_and_serve() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let starts = (0..PODS).map(|n| {
        let (mut client, image) = (host.client(), image.clone());
        let config = spec::pod(&format!("many{n}"), host.dir());
        async move {
            let pod = client.run_pod(&config).await.unwrap();
            let container =
                client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
            (pod, container)
        }
    });
    let pods = futures::future::join_all(starts).await;
    let ready: BTreeSet<_> = client
        .pods()
        .await
        .unwrap()
        .into_iter()
        .filter(|pod| pod.state() == v1::PodSandboxState::SandboxReady)
        .map(|pod| pod.id)
        .collect();
    assert_eq!(ready, pods.iter().map(|(pod, _)| pod.clone()).collect());
    let mut addresses = BTreeSet::new();
    for (pod, container) in &pods {
        addresses.insert(client.pod_ip(pod).await.unwrap());
        let name = client.sh(container, "hostname").await.unwrap();
        assert!(name.starts_with("many"), "{name:?}");
    }
    assert_eq!(addresses.len(), PODS, "each pod has an address of its own: {addresses:?}");
    print_list_median(&mut client).await;
    let removals = pods.iter().map(|(pod, _)| {
        let (mut client, pod) = (host.client(), pod.clone());
        async move { client.remove_pod(&pod).await.unwrap() }
    });
    futures::future::join_all(removals).await;
    assert_eq!(client.pods().await.unwrap().len(), 0);
    host.stop().await.unwrap();
}

/// Prints the cost of a list with so many running VMs. It is not asserted: the node is emulated.
async fn print_list_median(client: &mut tests_e2e::client::Client) {
    let mut times = Vec::new();
    for _ in 0..21 {
        let begun = Instant::now();
        assert_eq!(client.pods().await.unwrap().len(), PODS);
        times.push(begun.elapsed());
    }
    times.sort();
    println!("ListPodSandbox with {PODS} pods: median {:?} of {}", times[times.len() / 2], times.len());
}
