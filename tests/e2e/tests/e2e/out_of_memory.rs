//! Pods with a cgroup on the node too small for their memory or processes.

use std::fs;
use std::path::{Path, PathBuf};

use proto_cri::v1;
use tests_e2e::{Host, spec};

const MIB: u64 = 1 << 20;

/// A cgroup with a limit of memory, as the kubelet makes one for a pod. Goes with the value.
pub(crate) struct PodCgroup {
    name: String,
    path: PathBuf,
}

impl PodCgroup {
    pub(crate) fn make(name: &str, limit: u64) -> PodCgroup {
        let name = format!("e2e-{name}-{}", std::process::id());
        let path = Path::new("/sys/fs/cgroup").join(&name);
        fs::create_dir_all(&path).unwrap();
        let cgroup = PodCgroup { name: format!("/{name}"), path };
        cgroup.limit(limit);
        cgroup
    }

    fn limit(&self, bytes: u64) {
        fs::write(self.path.join("memory.max"), bytes.to_string()).unwrap();
    }

    /// As the kubelet's `podPidsLimit`.
    fn limit_tasks(&self, tasks: u64) {
        fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+pids").unwrap();
        fs::write(self.path.join("pids.max"), tasks.to_string()).unwrap();
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path.join(file)).unwrap()
    }

    pub(crate) fn oom_kills(&self) -> u64 {
        let events = self.read("memory.events");
        events.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap().parse().unwrap()
    }
}

impl Drop for PodCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

/// A pod in this cgroup, with this limit of memory.
pub(crate) fn pod(name: &str, host: &Host, cgroup: &PodCgroup, limit: u64) -> v1::PodSandboxConfig {
    let mut config = spec::pod(name, host.dir());
    let linux = config.linux.get_or_insert_default();
    linux.cgroup_parent.clone_from(&cgroup.name);
    linux.resources.get_or_insert_default().memory_limit_in_bytes = i64::try_from(limit).unwrap();
    config
}

fn limited(config: v1::ContainerConfig, limit: u64) -> v1::ContainerConfig {
    spec::with_memory(config, i64::try_from(limit).unwrap())
}

#[tokio::test]
async fn a_guest_that_fills_a_cgroup_without_overhead_loses_a_container_and_not_its_vm() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let cgroup = PodCgroup::make("fit", 160 * MIB);
    let pod = client.run_pod(&pod("fit", &host, &cgroup, 160 * MIB)).await.unwrap();
    let sleeper = spec::container("sleeper", &image, &["sleep", "3600"]);
    let sleeper = client.run(&pod, limited(sleeper, 100 * MIB)).await.unwrap();
    // Within its limit, and beyond the guest's memory.
    for attempt in 0..2 {
        let line = "BEGIN { for (;;) held[count++] = sprintf(\"%50000s\", \"\") }";
        let eater = spec::container(&format!("eater{attempt}"), &image, &["awk", line]);
        let eater = client.run(&pod, limited(eater, 160 * MIB)).await.unwrap();
        let status = client.wait(&eater).await.unwrap();
        assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"), "{}", status.message);
    }
    assert_eq!(client.sh(&sleeper, "echo alive").await.unwrap(), "alive\n");
    let peak: u64 = cgroup.read("memory.peak").trim().parse().unwrap();
    eprintln!("the VM and its VMM took {} of {} MiB", peak / MIB, 160);
    assert_eq!(cgroup.oom_kills(), 0, "{}", cgroup.read("memory.events"));
    let info = client.pod_status_verbose(&pod).await.unwrap().1;
    let (size, wanted) = (&info["resources"]["size"]["memory_bytes"], &info["resources"]["wanted_bytes"]);
    assert!(size.as_u64().unwrap() < 144 * MIB && wanted.as_u64().unwrap() > 208 * MIB, "{info}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_vmm_that_the_nodes_kernel_kills_takes_its_containers_along_as_oom_killed() {
    let Some(mut host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    for restarted in [false, true] {
        let cgroup = PodCgroup::make(if restarted { "restarted" } else { "killed" }, 256 * MIB);
        let pod = client.run_pod(&pod("killed", &host, &cgroup, 128 * MIB)).await.unwrap();
        let mut sleeper = spec::container("sleeper", &image, &["sleep", "3600"]);
        let linux = sleeper.linux.get_or_insert_default();
        linux.resources.get_or_insert_default().oom_score_adj = 917;
        let sleeper = client.run(&pod, limited(sleeper, 64 * MIB)).await.unwrap();
        let vmm = client.vmm(&pod).await.unwrap();
        let score = fs::read_to_string(format!("/proc/{vmm}/oom_score_adj")).unwrap();
        assert_eq!(score, "917\n");
        if restarted {
            host.daemon.stop().await.unwrap();
        }
        // Less than any guest's memory.
        cgroup.limit(4 * MIB);
        // The VMM, and its share too where the kernel is not content with that.
        assert!((1..=2).contains(&cgroup.oom_kills()), "{}", cgroup.read("memory.events"));
        if restarted {
            host.daemon.kill_and_restart().await.unwrap();
            client = host.client();
        }
        let status = client.wait(&sleeper).await.unwrap();
        assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"), "{}", status.message);
        let says = format!("the cgroup {} reached its limit of 4 MiB", cgroup.name);
        assert!(status.message.contains(&says), "{}", status.message);
        client.remove_pod(&pod).await.unwrap();
    }
    host.stop().await.unwrap();
}

#[tokio::test]
async fn the_kubelets_limit_of_a_pods_processes_holds_in_the_guest() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let cgroup = PodCgroup::make("tasks", 1024 * MIB);
    cgroup.limit_tasks(200);
    let pod = client.run_pod(&pod("tasks", &host, &cgroup, 256 * MIB)).await.unwrap();
    let sleeper = client.run(&pod, spec::container("sleeper", &image, &["sleep", "3600"])).await.unwrap();
    // All containers of the pod count together.
    let line = "n=0; while [ $n -lt 300 ]; do sleep 3600 & n=$((n + 1)); done; echo none refused";
    let many = client.run(&pod, spec::shell("many", &image, line)).await.unwrap();
    let status = client.wait(&many).await.unwrap();
    assert_ne!(status.exit_code, 0, "{}", status.message);
    // The VM has its own processes, and nothing refuses them.
    assert_eq!(cgroup.read("pids.events").trim(), "max 0");
    assert_eq!(client.sh(&sleeper, "echo alive").await.unwrap(), "alive\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
