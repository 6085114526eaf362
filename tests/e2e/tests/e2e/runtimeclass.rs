//! `podvisor runtimeclass`: VMs of this node are measured, and a pod of the printed class has all its
//! promised memory.

use proto_cri::v1;
use tests_e2e::traces::Traces;
use tests_e2e::{Host, spec};
use tokio::process::Command;

use crate::out_of_memory::PodCgroup;

const MIB: u64 = 1 << 20;

/// Memory of the pod's container, in bytes.
const LIMIT: u64 = 192 * MIB;

/// Memory filled by the container, in MiB: its limit, minus the rest of awk.
const FILLED_MIB: u64 = LIMIT / MIB - 24;

/// The classes as the program prints them.
async fn printed(host: &Host, arguments: &[&str]) -> (serde_json::Value, String) {
    let output = Command::new(host.daemon.binary())
        .arg("--config")
        .arg(host.daemon.config())
        .args(["runtimeclass", "-o", "json", "--up-to", "192m"])
        .args(arguments)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

/// The overhead of the first class, in bytes.
fn overhead(classes: &serde_json::Value) -> u64 {
    let memory = classes["items"][0]["overhead"]["podFixed"]["memory"].as_str().unwrap();
    memory.strip_suffix("Mi").unwrap().parse::<u64>().unwrap() * MIB
}

#[tokio::test]
async fn a_pod_of_a_measured_class_reaches_its_limit_in_the_cgroup_that_the_class_gives_it() {
    let Some(host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let (measured, said) = printed(&host, &["--measure"]).await;
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    assert_eq!(measured["items"][0]["metadata"]["annotations"]["podvisor.io/overhead"], "measured");
    assert!(!said.contains("WARNING"), "the daemon counts with less than was measured: {said}");
    let overhead = overhead(&measured);
    assert!(overhead >= self::overhead(&printed(&host, &["--assumed"]).await.0));

    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let cgroup = PodCgroup::make("class", LIMIT + overhead);
    let mut config = crate::out_of_memory::pod("class", &host, &cgroup, LIMIT);
    let bytes = i64::try_from(overhead).unwrap();
    let of_class = v1::LinuxContainerResources { memory_limit_in_bytes: bytes, ..Default::default() };
    config.linux.get_or_insert_default().overhead = Some(of_class);
    let pod = client.run_pod(&config).await.unwrap();
    let main = spec::container("main", &image, &["sleep", "3600"]);
    let limit = i64::try_from(LIMIT).unwrap();
    let main = client.run(&pod, spec::with_memory(main, limit)).await.unwrap();

    let info = client.pod_info(&pod, "/guest").await.unwrap();
    let figure = |path: &str| info.pointer(path).and_then(serde_json::Value::as_u64).unwrap();
    let (vm, available) = (figure("/vm/memory_bytes"), figure("/guest/available_bytes"));
    eprintln!(
        "an overhead of {} MiB: a VM of {} MiB, whose guest takes {}",
        overhead / MIB,
        vm / MIB,
        (vm - available) / MIB
    );
    assert!(available >= LIMIT, "{available} of {LIMIT} are left for the containers: {info}");
    assert!(vm < LIMIT + overhead, "the VMM has room beside its VM");

    let line = format!(
        "awk 'BEGIN {{ while (n++ < {FILLED_MIB}) held[n] = sprintf(\"%1048000s\", \"\"); print length(held[1]) }}'"
    );
    let filled = client.exec(&main, &["sh", "-c", &line], 600).await.unwrap();
    assert_eq!((filled.exit_code, filled.stdout.as_slice()), (0, &b"1048000\n"[..]), "{filled:?}");
    assert_eq!(cgroup.oom_kills(), 0, "{}", cgroup.read("memory.events"));
    let peak: u64 = cgroup.read("memory.peak").trim().parse().unwrap();
    eprintln!("filled, the VM and its VMM took {} of {} MiB", peak / MIB, (LIMIT + overhead) / MIB);
    assert_eq!(client.sh(&main, "echo alive").await.unwrap(), "alive\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
