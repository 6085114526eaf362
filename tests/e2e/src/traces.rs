//! Traces of pods on a host: processes, network namespaces, links, mounts, cgroups. The difference between
//! those before and after a test was left behind.

use std::collections::BTreeSet;
use std::path::Path;

/// Characters of a VM's id in its directory's name.
const DIR_CHARS: usize = 24;

/// The traces on the host at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traces {
    found: BTreeSet<String>,
}

impl Traces {
    /// Looks for resources of the daemon with the directory `dir`, and for our links and namespaces.
    ///
    /// # Errors
    /// When `/proc` or `/sys` cannot be read.
    pub fn take(dir: &Path) -> std::io::Result<Traces> {
        let mut found = BTreeSet::new();
        found.extend(vmm_processes(dir)?);
        found.extend(names("/run/netns", "netns", |name| name.starts_with("podvisor-")));
        found.extend(names("/sys/class/net", "link", |name| {
            name.starts_with("veth") || name.starts_with("tap")
        }));
        found.extend(mounts(dir)?);
        // The cgroup of VMs without a pod stays, no matter which daemon made it; its processes are found
        // separately.
        found.extend(cgroups(Path::new("/sys/fs/cgroup")).into_iter().filter(|cgroup| !is_unclaimed(cgroup)));
        Ok(Traces { found })
    }

    /// The new traces, compared with `before`.
    pub fn since(&self, before: &Traces) -> Vec<String> {
        self.found.difference(&before.found).cloned().collect()
    }
}

/// The process ids of VMMs without a pod: for a template, or in a pool. All of them have one cgroup.
pub fn vmms_without_pod() -> BTreeSet<u32> {
    let cgroups = cgroups(Path::new("/sys/fs/cgroup")).into_iter().filter(|cgroup| is_unclaimed(cgroup));
    let files = cgroups.map(|cgroup| Path::new(cgroup.trim_start_matches("cgroup ")).join("cgroup.procs"));
    let processes = files.map(|file| std::fs::read_to_string(file).unwrap_or_default());
    let pids = processes.flat_map(|pids| pids.lines().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>());
    pids.filter(|pid| !is_share(*pid)).collect()
}

/// Returns true for the process that serves a VMM's volumes. It is in its VMM's cgroup.
fn is_share(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "podvisor-share")
}

/// The ids of VMs in the pool, by the daemon's log: created, and neither taken nor ended. One is ended if the
/// node is short of memory.
pub fn waiting_vms(log: &str) -> Vec<String> {
    let with = |text: &'static str| log.lines().filter(move |line| line.contains(text));
    let gone: Vec<_> = with("a spare is ended").chain(with("a spare VM is claimed")).collect();
    let id = |line: &'_ str| line.split('"').nth(1).map(str::to_owned);
    let made = with("a VM waits for a pod").filter_map(id);
    made.filter(|id| !gone.iter().any(|line| line.contains(id.as_str()))).collect()
}

/// Returns true if the trace is the VMM's of this id, by the daemon's log, or in its directory.
pub(crate) fn is_of_vm(trace: &str, id: &str, log: &str) -> bool {
    let started = format!("a VMM was started pod=\"{id}\" pid=");
    let process = log.split_once(&started).and_then(|(_, rest)| rest.lines().next());
    let is_process = process.is_some_and(|pid| trace.starts_with(&format!("process {pid} ")));
    is_process || id.get(..DIR_CHARS).is_some_and(|dir| trace.contains(dir))
}

fn is_unclaimed(cgroup: &str) -> bool {
    cgroup.ends_with("/podvisor-unclaimed")
}

/// The process ids of all VMMs on the host.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn vmms() -> std::io::Result<Vec<u32>> {
    let named = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| name.starts_with("podvisor-vmm"))
    };
    Ok(pids()?.into_iter().filter(named).collect())
}

fn pids() -> std::io::Result<Vec<u32>> {
    let names = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.file_name());
    Ok(names.filter_map(|name| name.to_str()?.parse().ok()).collect())
}

fn vmm_processes(dir: &Path) -> std::io::Result<Vec<String>> {
    let marker = dir.display().to_string();
    let mut found = Vec::new();
    for pid in pids()? {
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let command = String::from_utf8_lossy(&read("comm")).trim().to_owned();
        let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        if command.starts_with("podvisor-vmm") || (line.contains("podvisor-vmm") && line.contains(&marker)) {
            found.push(format!("process {pid} {command} {line}"));
        }
    }
    Ok(found)
}

fn names(dir: &str, what: &str, ours: impl Fn(&str) -> bool) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| ours(name))
        .map(|name| format!("{what} {name}"))
        .collect()
}

fn mounts(dir: &Path) -> std::io::Result<Vec<String>> {
    let dir = dir.display().to_string();
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(table
        .lines()
        // Field 5 is the mount point (proc_pid_mountinfo(5)).
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| point.starts_with(&dir) || point.contains("/netns/podvisor-"))
        .map(|point| format!("mount {point}"))
        .collect())
}

fn cgroups(root: &Path) -> Vec<String> {
    /// Depth of folders looked into: enough for `kubepods/<class>/<pod>/<ours>`, and for cgroup v1's folder
    /// per controller.
    const DEPTH_MAX: usize = 6;
    let mut found = Vec::new();
    let mut pending = vec![(root.to_owned(), 0)];
    while let Some((dir, depth)) = pending.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let path = entry.path();
            // A pod's own cgroup; their parent stays, as a slice does.
            let in_ours = path.parent().and_then(Path::file_name).is_some_and(|parent| parent == "podvisor");
            if in_ours || entry.file_name().to_string_lossy().starts_with("podvisor-") {
                found.push(format!("cgroup {}", path.display()));
            } else if depth < DEPTH_MAX {
                pending.push((path, depth + 1));
            }
        }
    }
    found
}
