//! Compares the records with the node, and describes each difference. Pure.
//!
//! A trace belongs to a pod by the pod's id, or by its beginning as the name of a run directory. A daemon
//! owns the content of its directories. Namespaces, CNI results and cgroups belong to the whole node. They
//! are ownerless if no daemon here has the pod on record, and no VMM of another daemon runs for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::files::DaemonFiles;
use super::on_node::OnNode;
use super::on_record::{Daemon, Life};
use crate::dirs::DaemonDirs;
use crate::host::vmm_process::RunningVmm;
use crate::record::VmmProcess;

/// A difference between the records and the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The object found, or missing.
    pub what: String,
    /// Its meaning.
    pub means: &'static str,
    /// The remedy, for the operator.
    pub advice: &'static str,
    /// The ownerless object.
    pub(crate) leftover: Option<Leftover>,
}

/// An ownerless object, as needed for its removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    Vmm(VmmProcess),
    /// The network of the pod with this id.
    Network(String),
    /// A run directory, by its name.
    RunDir(DaemonDirs, String),
    /// A state directory, by the pod's id.
    StateDir(DaemonDirs, String),
    Cgroup(PathBuf),
    File(PathBuf),
    /// The run directory of a daemon.
    Place(PathBuf),
    /// A value in quarantine, by its name.
    Quarantined(DaemonDirs, String),
}

impl Difference {
    /// Whether `repair` removes something.
    pub fn is_leftover(&self) -> bool {
        self.leftover.is_some()
    }

    /// Whether both are about one object. Its text may have changed: an ownerless VM goes on writing to its
    /// disk.
    fn is_same(&self, other: &Difference) -> bool {
        match &self.leftover {
            Some(leftover) => other.leftover.as_ref() == Some(leftover),
            None => self == other,
        }
    }
}

const REPAIR: &str = "podvisor doctor --repair takes it away";

/// Compares. The result is in the order of removal: a VMM before its resources. `node` lists the findings for
/// `daemons`, in the same order.
pub fn differences(daemons: &[Daemon], node: &OnNode) -> Vec<Difference> {
    let comparison = Comparison { daemons, node };
    let mut found = Vec::new();
    found.extend(comparison.pods_without_vmm());
    found.extend(daemons.iter().flat_map(unclean));
    found.extend(comparison.vmms());
    found.extend(comparison.networks());
    for (daemon, files) in daemons.iter().zip(&node.daemons) {
        found.extend(run_dirs(daemon, files));
        found.extend(state_dirs(daemon, files));
        found.extend(acks(daemon, files));
    }
    found.extend(comparison.cgroups());
    for (daemon, files) in daemons.iter().zip(&node.daemons) {
        found.extend(images(files));
        found.extend(records(daemon));
        found.extend(place(daemon, files));
    }
    found
}

/// Returns the differences present in both passes. All others were work in progress.
pub fn in_both(first: &[Difference], second: Vec<Difference>) -> Vec<Difference> {
    second.into_iter().filter(|difference| first.iter().any(|earlier| earlier.is_same(difference))).collect()
}

struct Comparison<'a> {
    daemons: &'a [Daemon],
    node: &'a OnNode,
}

impl Comparison<'_> {
    /// The daemon with the VMM's run directory.
    fn daemon_of(&self, vmm: &RunningVmm) -> Option<&Daemon> {
        let pods = pods_dir(vmm)?;
        self.daemons.iter().find(|daemon| daemon.place.dirs.run_dirs() == pods)
    }

    /// Whether the pod has an owner.
    fn is_owned(&self, pod: &str) -> bool {
        let on_record = |daemon: &Daemon| daemon.record.has(pod);
        let runs_elsewhere = |vmm: &RunningVmm| {
            self.daemon_of(vmm).is_none() && name_of(vmm).is_some_and(|name| pod.starts_with(name))
        };
        self.daemons.iter().any(on_record) || self.node.vmms.iter().any(runs_elsewhere)
    }

    fn pods_without_vmm(&self) -> Vec<Difference> {
        let runs = |daemon: &Daemon, id: &str| {
            let socket = daemon.place.dirs.control_socket(id);
            self.node.vmms.iter().any(|vmm| vmm.control_socket == socket)
        };
        let pods =
            self.daemons.iter().flat_map(|daemon| daemon.record.pods.iter().map(move |pod| (daemon, pod)));
        pods.filter(|(daemon, (id, pod))| pod.ready && !runs(daemon, id))
            .map(|(_, (id, pod))| Difference {
                what: format!("pod {} ({id}) is ready on record, and no VMM runs for it", pod.name),
                means: "its VM has ended, unnoticed by any daemon",
                advice: "make sure the daemon runs and answers: it reports the pod as not ready, and the kubelet makes \
                         another; podvisor console says how the VM ended",
                leftover: None,
            })
            .collect()
    }

    fn vmms(&self) -> Vec<Difference> {
        let difference = |vmm: &RunningVmm| {
            let (pid, name) = (vmm.process.pid, name_of(vmm).unwrap_or("?"));
            let run_dir = pods_dir(vmm).and_then(Path::parent).unwrap_or(Path::new("?")).display();
            match self.daemon_of(vmm) {
                Some(daemon) if daemon.record.has(name) => None,
                Some(_) => Some(Difference {
                    what: format!("VMM process {pid} of {run_dir} runs for pod {name}…, not on record"),
                    means: "the pod was removed, or a daemon was killed before it wrote the VMM down; the guest runs \
                            on and has its memory",
                    advice: REPAIR,
                    leftover: Some(Leftover::Vmm(vmm.process)),
                }),
                None if vmm.attended => None,
                None => Some(Difference {
                    what: format!("VMM process {pid} runs for pod {name}… of the run directory {run_dir}"),
                    means: "another daemon has made it and does not run now; pods outlive their daemon",
                    advice: "start that daemon, or look with its configuration: podvisor --config FILE doctor",
                    leftover: None,
                }),
            }
        };
        self.node.vmms.iter().filter_map(difference).collect()
    }

    fn networks(&self) -> Vec<Difference> {
        let mut traces: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for trace in self.node.networks.iter().filter(|trace| !self.is_owned(&trace.pod_id)) {
            traces.entry(&trace.pod_id).or_default().push(trace.path.display().to_string());
        }
        let networks = traces.into_iter().map(|(pod, paths)| Difference {
            what: format!("network of pod {pod}, not on record: {}", paths.join(", ")),
            means: "a network namespace with its interfaces and tap, or the record of a CNI ADD without its DEL: \
                    addresses and rules of the node may be taken still",
            advice: "podvisor doctor --repair runs the CNI plugins' DEL and removes it",
            leftover: Some(Leftover::Network(pod.to_owned())),
        });
        let leases =
            self.node.leases.iter().filter(|(pod, _)| !self.is_owned(pod)).map(|(pod, path)| Difference {
                what: format!("address {} is given to pod {pod}, not on record", path.display()),
                means: "a command's private daemon was killed; no other pod can get the address",
                advice: REPAIR,
                leftover: Some(Leftover::File(path.clone())),
            });
        networks.chain(leases).collect()
    }

    fn cgroups(&self) -> Vec<Difference> {
        let nobodys = self.node.cgroups.iter().filter(|(pod, _)| !self.is_owned(pod));
        nobodys
            .map(|(pod, path)| Difference {
                what: format!("cgroup {} of pod {pod}, not on record", path.display()),
                means: "its processes have ended, or are a VMM also listed here",
                advice: REPAIR,
                leftover: Some(Leftover::Cgroup(path.clone())),
            })
            .collect()
    }
}

/// The parent of all pods' run directories, from the VMM's own.
fn pods_dir(vmm: &RunningVmm) -> Option<&Path> {
    vmm.control_socket.parent()?.parent()
}

/// The name of the VMM's run directory.
fn name_of(vmm: &RunningVmm) -> Option<&str> {
    vmm.control_socket.parent()?.file_name()?.to_str()
}

fn run_dirs(daemon: &Daemon, files: &DaemonFiles) -> Vec<Difference> {
    let dirs = &daemon.place.dirs;
    let nobodys = files.run_dirs.iter().filter(|(name, _)| !daemon.record.has(name));
    nobodys
        .map(|(name, mounts)| Difference {
            what: format!(
                "directory {} with {mounts} mounts, of a pod not on record",
                dirs.pod_run_dir(name).display()
            ),
            means: "sockets, acknowledgements and the shared directory of a removed pod",
            advice: REPAIR,
            leftover: Some(Leftover::RunDir(dirs.clone(), name.clone())),
        })
        .collect()
}

fn state_dirs(daemon: &Daemon, files: &DaemonFiles) -> Vec<Difference> {
    let dirs = &daemon.place.dirs;
    let nobodys = files.state_dirs.iter().filter(|(pod, _)| !daemon.record.has(pod));
    nobodys
        .map(|(pod, bytes)| Difference {
            what: format!(
                "directory {} with {} KiB, of a pod not on record",
                dirs.pod_state_dir(pod).display(),
                bytes >> 10
            ),
            means: "the scratch disk and other files of a removed pod",
            advice: REPAIR,
            leftover: Some(Leftover::StateDir(dirs.clone(), pod.clone())),
        })
        .collect()
}

/// Pods that a stop could not remove whole. They are on record, so nothing of them is a leftover.
fn unclean(daemon: &Daemon) -> Vec<Difference> {
    let pods = daemon.record.pods.iter().filter_map(|(id, pod)| Some((id, pod, pod.unclean.as_ref()?)));
    pods.map(|(id, pod, why)| Difference {
        what: format!("pod {} ({id}) could not be removed whole: {why}", pod.name),
        means: "something of it is left, and stays its own: no repair removes it",
        advice: "remove the cause; the next stop of the pod tries again: the kubelet's, or podvisor rm",
        leftover: None,
    })
    .collect()
}

/// Acknowledgements in the directories of pods on record. Others go with their directory.
fn acks(daemon: &Daemon, files: &DaemonFiles) -> Vec<Difference> {
    let record = &daemon.record;
    let nobodys = files
        .acks
        .iter()
        .filter(|acks| record.has(&acks.pod) && !record.containers.contains(&acks.container));
    nobodys
        .map(|acks| Difference {
            what: format!("file {} of container {}, not on record", acks.path.display(), acks.container),
            means: "the place in the log of a removed container",
            advice: REPAIR,
            leftover: Some(Leftover::File(acks.path.clone())),
        })
        .collect()
}

fn images(files: &DaemonFiles) -> Vec<Difference> {
    let nobodys = files.image_files.iter().map(|path| Difference {
        what: format!("file {} of an image not on record", path.display()),
        means: "a pull or a removal was cut short, and nothing names it; its space is taken",
        advice: REPAIR,
        leftover: Some(Leftover::File(path.clone())),
    });
    let missing = files.images_missing.iter().map(|image| Difference {
        what: format!("image {image} is on record, and its file is missing"),
        means: "the file was removed by hand; no container of the image can be created",
        advice: "restart the daemon to take such images off the record, and pull the image again",
        leftover: None,
    });
    nobodys.chain(missing).collect()
}

fn records(daemon: &Daemon) -> Vec<Difference> {
    let unreadable = daemon.record.unreadable.iter().map(|why| Difference {
        what: why.clone(),
        means: "the file of records is damaged here; the next daemon ends the pod or container and serves the others",
        advice: "look for failures of the disk, and start the daemon",
        leftover: None,
    });
    let quarantined = daemon.record.quarantined.iter().map(|name| Difference {
        what: format!("the value {name} is in quarantine"),
        means: "it could not be read when a daemon started, and was kept for analysis",
        advice: "look for failures of the disk; with the daemon stopped, podvisor doctor --repair removes it",
        leftover: (daemon.place.life != Life::Serving)
            .then(|| Leftover::Quarantined(daemon.place.dirs.clone(), name.clone())),
    });
    unreadable.chain(quarantined).collect()
}

fn place(daemon: &Daemon, files: &DaemonFiles) -> Option<Difference> {
    let run_dir = &daemon.place.dirs.run_dir;
    if daemon.place.life == Life::Over {
        return files.has_run_dir.then(|| Difference {
            what: format!("directory {} of an ended private daemon", run_dir.display()),
            means: "a podvisor run was killed, and its daemon too",
            advice: REPAIR,
            leftover: Some(Leftover::Place(run_dir.clone())),
        });
    }
    files.stale_socket.as_ref().map(|socket| Difference {
        what: format!("socket {} without a listener", socket.display()),
        means: "the daemon was killed",
        advice: "start the daemon; it makes the socket again",
        leftover: Some(Leftover::File(socket.clone())),
    })
}

#[cfg(test)]
mod tests;
