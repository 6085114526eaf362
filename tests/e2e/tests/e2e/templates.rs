//! Pods from a template: everything works there, no two of them share a secret, and an unusable template is
//! detected.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use proto_cri::v1;
use tests_e2e::built::Built;
use tests_e2e::client::Client;
use tests_e2e::wait::{until, until_seen};
use tests_e2e::{Host, http, spec};

use crate::load::size;

/// The handler of pods from a template.
const HANDLER: &str = "cloned";

/// How far a guest's clock may be off right after its start, in seconds.
const CLOCK_OFF_MAX: u64 = 30;

trait Templates {
    async fn without_templates(&mut self);
    async fn want_templates(&mut self, more: &str);
    fn templates(&self) -> Vec<PathBuf>;
    async fn has_template(&self) -> PathBuf;
    fn starts(&self, line: &str) -> usize;
    async fn has_run_dirs(&self, wanted: bool);
    /// Numbers of pages, written and read, prefetched for guests, for each template with an observed pod.
    fn pages_ahead(&self, until: &str) -> Vec<(u32, u32)>;
}

impl Templates for Host {
    /// Removes templates from the daemon's other handler, and stops the daemon if it had any.
    async fn without_templates(&mut self) {
        let config = fs::read_to_string(self.daemon.config()).unwrap();
        let (on, off) = ("template = \"node\"\n", "template = \"off\"\n");
        if config.contains(on) {
            self.daemon.stop().await.unwrap();
            let _ = fs::remove_dir_all(self.dir().join("state/templates"));
            let config = config.replace(on, off).replace("spare_vms = 4\n", "");
            fs::write(self.daemon.config(), config).unwrap();
        }
    }

    /// Restarts the daemon with a template handler and the lines `more`. No other handler has templates.
    async fn want_templates(&mut self, more: &str) {
        self.without_templates().await;
        let path = self.daemon.config().to_owned();
        let config = fs::read_to_string(&path).unwrap();
        let handler = format!(
            "[[handler]]\nname = \"{HANDLER}\"\nmemory_mib = 64\nscratch_mib = 512\ntemplate = \"node\"\n{more}"
        );
        fs::write(&path, config + &handler).unwrap();
        self.daemon.kill_and_restart().await.unwrap();
    }

    fn templates(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir().join("state/templates")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Waits for the template on the disk, the last step of making one.
    async fn has_template(&self) -> PathBuf {
        until_seen("a template on the disk", async || {
            let made = self.templates().into_iter().find(|path| {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                !name.starts_with('.') && path.join("record").exists()
            });
            made.ok_or_else(|| self.templates())
        })
        .await
    }

    /// How many VMMs of pods were asked to boot, or to restore.
    fn starts(&self, line: &str) -> usize {
        let pods = fs::read_dir(self.dir().join("run/pods")).into_iter().flatten().flatten();
        let logs = pods.filter_map(|pod| fs::read_to_string(pod.path().join("shared/logs/vmm.log")).ok());
        logs.filter(|log| log.contains(&format!("\"message\":\"{line}\""))).count()
    }

    /// Waits until there are directories of running VMs, or none: no pod exists, and those of templates come
    /// and go.
    async fn has_run_dirs(&self, wanted: bool) {
        let there = || fs::read_dir(self.dir().join("run/pods")).is_ok_and(|mut dirs| dirs.next().is_some());
        let event = if wanted { "directories of VMs to come" } else { "directories of VMs to go" };
        until(event, async || there() == wanted).await;
    }

    fn pages_ahead(&self, until: &str) -> Vec<(u32, u32)> {
        let log = self.daemon.log();
        let of_guests = |line: &&str| line.contains("have pages ahead") && line.contains(until);
        let number = |line: &str, name| line.split(name).nth(1)?.split_whitespace().next()?.parse().ok();
        let lines = log.lines().filter(of_guests);
        lines.filter_map(|line| Some((number(line, "writes=")?, number(line, "reads=")?))).collect()
    }
}

/// A pod of the handler with one sleeping container.
async fn sleeper(client: &mut Client, host: &Host, name: &str, image: &str) -> (String, String) {
    let pod = client.run_pod_on(&spec::pod(name, host.dir()), HANDLER).await.unwrap();
    let container = client.run(&pod, spec::container("main", image, &["sleep", "100000"])).await.unwrap();
    (pod, container)
}

#[tokio::test]
async fn pods_go_on_from_a_template_and_have_all_that_pods_have() {
    let Some(mut host) = Host::start().await else { return };
    host.want_templates("").await;
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    host.has_template().await;
    let config = spec::pod("whole", host.dir());
    let pod = client.run_pod_on(&config, HANDLER).await.unwrap();
    assert_eq!((host.starts("restore"), host.starts("boot")), (1, 0), "{}", host.daemon.log());
    // The first one shows the pages written by guests, and the next one, below, has copies of them from the
    // start.
    let until_ready = host.pages_ahead("until=Ready");
    assert!(matches!(until_ready[..], [(100..=u32::MAX, _)]), "{until_ready:?}: {}", host.daemon.log());
    let volume = tempfile::Builder::new().prefix("volume-").tempdir().unwrap();
    fs::write(volume.path().join("here"), "from the node").unwrap();
    let mut container =
        spec::shell("main", &image, "mkdir /www; echo served >/www/page; exec httpd -f -p 80 -h /www");
    let host_path = volume.path().to_str().unwrap().to_owned();
    container.mounts = vec![v1::Mount { container_path: "/volume".into(), host_path, ..Default::default() }];
    let container = client.run(&pod, container).await.unwrap();
    let until_container = host.pages_ahead("until=Container");
    let more = |(writes, reads): (u32, u32)| writes > until_ready[0].0 && reads > 0;
    assert!(until_container.len() == 1 && more(until_container[0]), "{until_container:?}");
    let seen = client.sh(&container, "cat /volume/here; echo back >/volume/there").await.unwrap();
    assert_eq!(seen, "from the node");
    assert_eq!(fs::read_to_string(volume.path().join("there")).unwrap(), "back\n");
    let ip = client.pod_ip(&pod).await.unwrap();
    assert_eq!(http::get_path(&ip, 80, "/page").await.unwrap().trim(), "served");
    let here = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let before = here();
    let inside: u64 = client.sh(&container, "date +%s").await.unwrap().trim().parse().unwrap();
    let possible = before - CLOCK_OFF_MAX..=here() + CLOCK_OFF_MAX;
    assert!(possible.contains(&inside), "{inside} inside, {possible:?} here");
    // The scratch disk has its size, and its files survive in the writable layer.
    client.sh(&container, "dd if=/dev/zero of=/big bs=1M count=16 2>/dev/null && rm /big").await.unwrap();
    // The VM grows for a second container.
    let large = spec::with_memory(spec::container("large", &image, &["sleep", "100000"]), 192 << 20);
    let large = client.run(&pod, large).await.unwrap();
    let taken = client.sh(&large, "dd if=/dev/zero of=/dev/shm/x bs=1M count=32 2>&1 && rm /dev/shm/x").await;
    assert!(taken.is_ok(), "{taken:?}");
    client.remove_pod(&pod).await.unwrap();

    let mapping = v1::IdMapping { container_id: 0, host_id: 100_000, length: 65_536 };
    let user =
        v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: vec![mapping], gids: vec![mapping] };
    let mut config = spec::pod("mapped", host.dir());
    let context = config.linux.get_or_insert_default().security_context.get_or_insert_default();
    context.namespace_options =
        Some(v1::NamespaceOption { userns_options: Some(user), ..Default::default() });
    let pod = client.run_pod_on(&config, HANDLER).await.unwrap();
    let mut container = spec::container("main", &image, &["sleep", "100000"]);
    container.linux = Some(v1::LinuxContainerConfig::default());
    let container = client.run(&pod, container).await.unwrap();
    assert_eq!(
        client.sh(&container, "awk '{ print $2 }' /proc/self/uid_map").await.unwrap().trim(),
        "100000"
    );
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// Number of compared clones, in a normal run, under load, and in a soak.
const CLONES: [usize; 3] = [3, 20, 100];

/// Values readable by a program of a container, each as a line of shell. No two clones have the same of any
/// of them.
const OF_ITS_OWN: [&str; 8] = [
    "cat /proc/sys/kernel/random/boot_id",
    "cat /proc/sys/kernel/random/uuid",
    "hexdump -n 32 -e '8/4 \"%08x\"' /dev/urandom",
    // The address space of a just executed program.
    "grep stack /proc/self/maps",
    "grep vdso /proc/self/maps",
    "hostname",
    "cat /sys/class/net/eth0/address",
    "ip -o -4 addr show eth0",
];

#[tokio::test]
async fn clones_share_nothing_that_a_container_can_read_but_what_is_listed() {
    let Some(mut host) = Host::start().await else { return };
    host.want_templates("").await;
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let template = host.has_template().await;
    assert_secrets_are_not_drawn(&template);
    let clones = size(CLONES);
    let mut seen = vec![BTreeSet::new(); OF_ITS_OWN.len()];
    let mut former = None;
    for number in 0..clones {
        let (pod, container) = sleeper(&mut client, &host, &format!("clone-{number}"), &image).await;
        for (line, seen) in OF_ITS_OWN.iter().zip(&mut seen) {
            let read = client.sh(&container, line).await.unwrap();
            assert!(!read.trim().is_empty(), "{line}");
            assert!(seen.insert(read.clone()), "{line}: clone {number} has what another had: {read}");
        }
        // Two exist at once, like on a node.
        if let Some(former) = former.replace(pod) {
            client.remove_pod(&former).await.unwrap();
        }
    }
    assert_eq!(host.daemon.log().matches("a pod boots").count(), 0, "all of them are clones");
    println!("{clones} clones, no two alike in any of {} things", OF_ITS_OWN.len());
    client.remove_pod(&former.unwrap()).await.unwrap();
    host.stop().await.unwrap();
}

/// A kernel's secrets, drawn at their first use, are zero in the template, according to the kernel's symbol
/// table. A kernel without this table beside it is skipped, with a line on stderr.
fn assert_secrets_are_not_drawn(template: &std::path::Path) {
    let built = Built::of_environment().unwrap();
    let kernel = fs::canonicalize(built.guest_image.join("vmlinux")).unwrap();
    let Ok(symbols) = fs::read_to_string(kernel.with_file_name("System.map")) else {
        eprintln!("skipped: no System.map beside {}", kernel.display());
        return;
    };
    let memory = File::open(template.join("memory")).unwrap();
    let mut looked_at = BTreeSet::new();
    for line in symbols.lines() {
        let mut fields = line.split(' ');
        let (address, name) = (fields.next().unwrap(), fields.nth(1).unwrap_or_default());
        let bytes = match name {
            "net_secret" | "ts_secret" | "sysctl_bootid" => 16,
            "inet_ehash_secret.0" | "udp_ehash_secret.0" | "inet6_ehash_secret.0" => 4,
            _ => continue,
        };
        let address = u64::from_str_radix(address, 16).unwrap();
        // The kernel's image is mapped here (`__START_KERNEL_map`, arch/x86/include/asm/page_64_types.h):
        // there is no KASLR.
        let place = address - 0xffff_ffff_8000_0000;
        let mut secret = vec![0xff; bytes];
        memory.read_exact_at(&mut secret, place).unwrap();
        assert!(secret.iter().all(|byte| *byte == 0), "{name} is drawn: {secret:x?}");
        looked_at.insert(name);
    }
    println!("secrets that are not drawn in the template: {looked_at:?}");
    assert!(["net_secret", "sysctl_bootid"].iter().all(|name| looked_at.contains(name)), "{looked_at:?}");
}

#[tokio::test]
async fn an_odd_template_is_found_out_and_made_anew() {
    let Some(mut host) = Host::start().await else { return };
    host.want_templates("").await;
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    const FOUND_OUT: &str = "a template on the disk is damaged";
    for (number, damage) in ["flip", "cut", "swap"].into_iter().enumerate() {
        let template = host.has_template().await;
        let memory = template.join("memory");
        match damage {
            "flip" => {
                // The kernel's text begins at 16 MiB.
                let file = File::options().read(true).write(true).open(&memory).unwrap();
                let mut byte = [0];
                file.read_exact_at(&mut byte, (16 << 20) + 64).unwrap();
                file.write_all_at(&[byte[0] ^ 4], (16 << 20) + 64).unwrap();
            }
            "cut" => File::options().write(true).open(&memory).unwrap().set_len(20 << 20).unwrap(),
            _ => fs::rename(&template, template.with_file_name("0".repeat(32))).unwrap(),
        }
        if damage == "swap" {
            // A template of another key, in the place of the expected one.
            fs::rename(template.with_file_name("0".repeat(32)), &template).unwrap();
            let record = fs::read_to_string(template.join("record")).unwrap();
            let key = template.file_name().unwrap().to_string_lossy().into_owned();
            fs::write(template.join("record"), record.replace(&key, &"0".repeat(32))).unwrap();
        }
        let before = host.daemon.log().matches(FOUND_OUT).count();
        host.daemon.kill_and_restart().await.unwrap();
        host.daemon.logs(FOUND_OUT, before + 1).await;
        client = host.client();
        let (pod, container) = sleeper(&mut client, &host, &format!("web-{number}"), &image).await;
        assert_eq!(client.sh(&container, "echo up").await.unwrap().trim(), "up", "{damage}");
        client.remove_pod(&pod).await.unwrap();
    }
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_large_pod_goes_on_from_the_handlers_template_and_grows_to_its_limit() {
    const LIMIT: i64 = 512 << 20;
    let Some(mut host) = Host::start().await else { return };
    host.want_templates("").await;
    host.has_template().await;
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut config = spec::pod("large", host.dir());
    config.linux.get_or_insert_default().resources.get_or_insert_default().memory_limit_in_bytes = LIMIT;
    let pod = client.run_pod_on(&config, HANDLER).await.unwrap();
    assert_eq!((host.starts("restore"), host.starts("boot")), (1, 0), "{}", host.daemon.log());
    let main = spec::with_memory(spec::container("main", &image, &["sleep", "100000"]), LIMIT);
    let container = client.run(&pod, main).await.unwrap();
    // A program can have all of it except its container's own needs.
    let touched = client.sh(&container, "dd if=/dev/zero of=/dev/null bs=440M count=1 2>&1").await.unwrap();
    assert!(touched.contains("1+0 records in"), "{touched}");
    let size = &client.pod_status_verbose(&pod).await.unwrap().1["resources"]["size"]["memory_bytes"];
    assert!(size.as_i64().unwrap() >= LIMIT, "{size}");
    // The guest kernel's own resources do not depend on the size at boot.
    let threads: u64 =
        client.sh(&container, "cat /proc/sys/kernel/threads-max").await.unwrap().trim().parse().unwrap();
    assert!(threads >= LIMIT.cast_unsigned() / (8 * 16 * 1024), "{threads}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_costs_the_template_and_a_kill_leaves_nothing() {
    let Some(mut host) = Host::start_on_disk(512).await else { return };
    host.without_templates().await;
    host.disk().fill().unwrap();
    host.want_templates("").await;
    host.daemon.logs("a template cannot be made", 1).await;
    assert!(host.templates().is_empty());
    host.disk().free().unwrap();
    // Killed while the template's VM exists.
    host.daemon.kill_and_restart().await.unwrap();
    host.has_run_dirs(true).await;
    host.daemon.kill_and_restart().await.unwrap();
    let template = host.has_template().await;
    assert_eq!(host.templates(), [template], "no half one");
    host.has_run_dirs(false).await;
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let (pod, _) = sleeper(&mut client, &host, "web", &image).await;
    assert_eq!(host.starts("restore"), 1, "{}", host.daemon.log());
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_gets_a_vm_that_waits_and_a_kill_leaves_none() {
    const WAITS: &str = "a VM waits for a pod";
    let Some(mut host) = Host::start().await else { return };
    host.want_templates("spare_vms = 1\n").await;
    host.daemon.logs(WAITS, 1).await;
    let path = host.daemon.config().to_owned();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    assert_eq!(client.pods().await.unwrap(), []);
    let doctor = std::process::Command::new(host.daemon.binary())
        .arg("--config")
        .args([&path, std::path::Path::new("doctor")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout);
    assert!(doctor.status.success(), "nothing of it is a leftover: {said}");

    let pod = client.run_pod_on(&spec::pod("web", host.dir()), HANDLER).await.unwrap();
    assert!(host.daemon.log().contains("a spare VM is claimed by a pod"), "{}", host.daemon.log());
    let served =
        spec::shell("main", &image, "mkdir /www; echo served >/www/page; exec httpd -f -p 80 -h /www");
    let container = client.run(&pod, served).await.unwrap();
    let seen = "hostname; grep -c '^overlay / ' /proc/mounts; [ -s /etc/resolv.conf ] && echo named";
    assert_eq!(client.sh(&container, seen).await.unwrap(), "web\n1\nnamed\n");
    let ip = client.pod_ip(&pod).await.unwrap();
    assert_eq!(http::get_path(&ip, 80, "/page").await.unwrap().trim(), "served");
    let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", client.vmm(&pod).await.unwrap())).unwrap();
    assert!(cgroups.trim().ends_with(&format!("/podvisor-{pod}/vm")), "{cgroups}");
    let log = fs::read_to_string(host.dir().join("state/pods").join(&pod).join("vmm.log")).unwrap();
    assert!(log.lines().next().unwrap().contains("\"name\":\"web\""), "{log}");

    // The next pod's VM is already pooled. If the daemon is killed meanwhile, the next one ends this VM: no
    // handler wants it.
    host.daemon.logs(WAITS, 2).await;
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace("spare_vms = 1", "spare_vms = 0")).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    assert_eq!(client.sh(&container, "echo goes on").await.unwrap(), "goes on\n");
    client.remove_pod(&pod).await.unwrap();
    host.has_run_dirs(false).await;
    host.stop().await.unwrap();
}
