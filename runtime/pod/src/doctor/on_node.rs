//! The traces of pods on the node, of any daemon: found by names and places alone. Everything here is
//! read-only.

use std::fs;
use std::path::{Path, PathBuf};

use runtime_net::{Cni, NetworkTrace};

use super::files::DaemonFiles;
use super::on_record::DaemonPlace;
use crate::error::PodError;
use crate::host::cgroup;
use crate::host::vmm_process::{self, RunningVmm};
use crate::id::is_id;

/// All traces of pods on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnNode {
    pub(crate) vmms: Vec<RunningVmm>,
    pub(crate) networks: Vec<NetworkTrace>,
    /// Addresses given out by the network of private daemons, each with the pod's id.
    pub(crate) leases: Vec<(String, PathBuf)>,
    /// Cgroups, each with the pod's id.
    pub(crate) cgroups: Vec<(String, PathBuf)>,
    /// The files of each daemon, in the order of the daemons.
    pub(crate) daemons: Vec<DaemonFiles>,
}

impl OnNode {
    /// Inspects the node. `leases` is the directory of addresses given out by private daemons' network. The
    /// call blocks on disks and reads much of `/proc`.
    ///
    /// # Errors
    /// An image directory cannot be read.
    pub fn look(cni: &Cni, daemons: &[DaemonPlace], leases: &Path) -> Result<OnNode, PodError> {
        let mounts = mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
        Ok(OnNode {
            vmms: vmm_process::all(),
            networks: cni.traces().into_iter().filter(|trace| is_id(&trace.pod_id)).collect(),
            leases: find_leases(leases),
            cgroups: cgroup::find(Path::new(cgroup::ROOT)),
            daemons: daemons
                .iter()
                .map(|daemon| DaemonFiles::look(daemon, &mounts))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// The mount points of a mount table: field 5, with unusual characters in octal (proc_pid_mountinfo(5)).
/// Podvisor's paths with such characters are not found. This only makes a count too small.
fn mounts(table: &str) -> Vec<PathBuf> {
    table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect()
}

/// The leases of the plugin host-local: a file for each address, in a directory for each network. The first
/// line is the pod's id.
fn find_leases(dir: &Path) -> Vec<(String, PathBuf)> {
    let networks = fs::read_dir(dir).into_iter().flatten().flatten();
    let files = networks.flat_map(|network| fs::read_dir(network.path()).into_iter().flatten().flatten());
    let leases = files.filter_map(|file| {
        let text = fs::read_to_string(file.path()).ok()?;
        let pod = text.lines().next()?.trim().to_owned();
        is_id(&pod).then(|| (pod, file.path()))
    });
    leases.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_those_files_that_name_a_pod() {
        let dir = tempfile::tempdir().unwrap();
        let network = dir.path().join("podvisor");
        fs::create_dir(&network).unwrap();
        let pod = "ab".repeat(32);
        fs::write(network.join("10.87.0.2"), format!("{pod}\r\neth0")).unwrap();
        fs::write(network.join("last_reserved_ip.0"), "10.87.0.2").unwrap();
        fs::write(network.join("lock"), "").unwrap();
        assert_eq!(find_leases(dir.path()), [(pod, network.join("10.87.0.2"))]);
        assert_eq!(find_leases(&dir.path().join("none")), []);
    }

    #[test]
    fn mount_points_are_read_from_the_table() {
        let table = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     90 22 0:44 / /run/podvisor/pods/ab/shared rw,nosuid shared:5 - tmpfs podvisor-shared rw\n";
        assert_eq!(mounts(table), [Path::new("/"), Path::new("/run/podvisor/pods/ab/shared")]);
    }
}
