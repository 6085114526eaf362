//! Paths on this node: the daemon's directories, and the configured files.

use std::ops::Deref;
use std::path::PathBuf;

use crate::config::Kernels;
use crate::dirs::DaemonDirs;
use crate::host::disk_image::DiskTemplate;
use crate::installation::PartFiles;
use crate::installed::InstalledFile;

/// Paths; the plain data of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) dirs: DaemonDirs,
    pub(crate) vmm_binary: InstalledFile,
    pub(crate) kernels: Kernels,
    pub(crate) root_image: InstalledFile,
    pub(crate) scratch_template: DiskTemplate,
    /// Mount point of cgroup v2.
    pub(crate) cgroup_root: PathBuf,
    /// The host's name servers, for pods without their own.
    pub(crate) resolv_conf: PathBuf,
    /// The servers behind the stub of systemd-resolved, used if the host's file has only the stub.
    pub(crate) resolved_conf: PathBuf,
}

impl Places {
    /// The files common to all VMs.
    pub(crate) fn part_files(&self) -> PartFiles<'_> {
        PartFiles { vmm: &self.vmm_binary, kernels: &self.kernels, agent: &self.root_image }
    }
}

/// The paths of pods are the directories'.
impl Deref for Places {
    type Target = DaemonDirs;

    fn deref(&self) -> &DaemonDirs {
        &self.dirs
    }
}
