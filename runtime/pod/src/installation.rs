//! Compares the files of running pods' VMs with the installed ones. An upgrade of the node leaves running VMs
//! as they are. Pods with an older VMM, kernel or agent must be found, so they can be drained. `build_id.rs`
//! identifies a file's build.
//!
//! ```text
//!  daemon's start: files kept open ──► pod's start: builds of those files, releases of the parts ──► record
//!  on request:     files now under these names ───────────────► compared ◄──────────────────────────┘
//! ```
//!
//! A pod on record without versions is of an early release: all its parts count as outdated.

use std::path::Path;

use runtime_spec::Kernel;

use crate::build_id;
use crate::config::Kernels;
use crate::installed::InstalledFile;
use crate::versions::{Part, VmVersions};
use crate::view::PodView;

/// Builds of the parts' files; `None` for an unreadable file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Builds {
    pub(crate) vmm: Option<String>,
    pub(crate) small_kernel: Option<String>,
    pub(crate) full_kernel: Option<String>,
    pub(crate) agent: Option<String>,
}

/// The parts' files, as the daemon has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartFiles<'a> {
    pub(crate) vmm: &'a InstalledFile,
    pub(crate) kernels: &'a Kernels,
    pub(crate) agent: &'a InstalledFile,
}

impl PartFiles<'_> {
    /// Builds for new pods. May wait for the disk.
    pub(crate) fn builds(&self) -> Builds {
        self.each(InstalledFile::build)
    }

    /// Reads the currently installed builds. May wait for the disk.
    pub(crate) fn look(&self) -> Installed {
        let builds = self.each(|file| read(file.name()).or_else(|| file.build()));
        Installed { restart_needed: builds != self.builds(), builds }
    }

    fn each(&self, build: impl Fn(&InstalledFile) -> Option<String>) -> Builds {
        Builds {
            vmm: build(self.vmm),
            small_kernel: build(&self.kernels.small),
            full_kernel: build(&self.kernels.full),
            agent: build(self.agent),
        }
    }
}

impl Builds {
    /// The build of a kernel's file.
    pub(crate) fn kernel(&self, kernel: Kernel) -> Option<&str> {
        let build = match kernel {
            Kernel::Small => &self.small_kernel,
            Kernel::Full => &self.full_kernel,
        };
        build.as_deref()
    }

    /// The valid builds of a part: each kernel is one.
    fn part(&self, part: Part) -> impl Iterator<Item = &str> {
        let (one, other) = match part {
            Part::Vmm => (&self.vmm, &None),
            Part::Kernel => (&self.small_kernel, &self.full_kernel),
            Part::Agent => (&self.agent, &None),
        };
        [one, other].into_iter().filter_map(Option::as_deref)
    }
}

/// The build of the file now under this name.
fn read(path: &Path) -> Option<String> {
    build_id::of(&std::fs::File::open(path).ok()?).ok()
}

/// The installation currently on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    builds: Builds,
    /// Whether the daemon still starts pods from replaced files. Until it is restarted, new pods are
    /// outdated, too.
    pub restart_needed: bool,
}

impl Installed {
    /// Outdated parts of the pod's VM, including parts of unknown version; none for a pod without a VM.
    pub fn outdated(&self, pod: &PodView) -> Vec<Part> {
        let parts = Part::ALL.into_iter().filter(|_| pod.vmm_pid.is_some());
        parts.filter(|part| !self.has(*part, pod.versions.as_ref())).collect()
    }

    /// Whether the installed part matches these versions.
    pub fn has(&self, part: Part, versions: Option<&VmVersions>) -> bool {
        let build = versions.and_then(|versions| versions.part(part).build.as_deref());
        build.is_some_and(|build| self.builds.part(part).any(|installed| installed == build))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::PartVersion;

    fn versions(build: &str) -> VmVersions {
        let part = || PartVersion { release: "1".into(), build: Some(build.into()) };
        VmVersions { vmm: part(), kernel: part(), agent: part() }
    }

    fn installed(build: &str) -> Installed {
        let build = || Some(build.to_owned());
        let builds = Builds { vmm: build(), small_kernel: build(), full_kernel: None, agent: build() };
        Installed { builds, restart_needed: false }
    }

    fn pod(versions: Option<VmVersions>) -> PodView {
        PodView { vmm_pid: Some(7), versions, ..PodView::default() }
    }

    #[test]
    fn a_part_of_another_build_is_outdated_and_the_others_are_not() {
        let installed = installed("new");
        assert!(installed.outdated(&pod(Some(versions("new")))).is_empty());
        assert_eq!(installed.outdated(&pod(Some(versions("old")))), Part::ALL);
        let mut one = versions("new");
        one.kernel.build = Some("old".into());
        assert_eq!(installed.outdated(&pod(Some(one))), [Part::Kernel]);
    }

    #[test]
    fn a_pod_may_have_either_installed_kernel() {
        let mut installed = installed("new");
        installed.builds.full_kernel = Some("full".into());
        let mut full = versions("new");
        full.kernel.build = Some("full".into());
        assert!(installed.outdated(&pod(Some(full.clone()))).is_empty());
        assert!(installed.outdated(&pod(Some(versions("new")))).is_empty());
        installed.builds.full_kernel = Some("newer".into());
        assert_eq!(installed.outdated(&pod(Some(full))), [Part::Kernel]);
    }

    #[test]
    fn what_nobody_knows_is_outdated() {
        assert_eq!(installed("new").outdated(&pod(None)), Part::ALL);
        let mut unknown = versions("new");
        unknown.vmm.build = None;
        assert_eq!(installed("new").outdated(&pod(Some(unknown.clone()))), [Part::Vmm]);
        // Two unknown builds are not one build.
        let nothing = Installed::default();
        assert_eq!(nothing.outdated(&pod(Some(unknown))), Part::ALL);
    }

    #[test]
    fn a_pod_without_a_vm_is_not_outdated() {
        let stopped = PodView { vmm_pid: None, ..pod(None) };
        assert!(installed("new").outdated(&stopped).is_empty());
    }

    #[test]
    fn files_that_were_replaced_ask_for_a_restart_until_they_are_what_the_daemon_has() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str, content: &str| {
            let (new, path) = (dir.path().join("new"), dir.path().join(name));
            std::fs::write(&new, content).unwrap();
            std::fs::rename(new, &path).unwrap();
            path
        };
        let keep = |name: &str| InstalledFile::keep(&place(name, name)).unwrap();
        let (vmm, agent) = (keep("vmm"), keep("agent"));
        let kernels = Kernels { small: keep("kernel"), full: keep("full-kernel") };
        let files = PartFiles { vmm: &vmm, kernels: &kernels, agent: &agent };
        let before = files.look();
        assert_eq!((before.restart_needed, &before.builds), (false, &files.builds()));
        place("kernel", "another kernel");
        let after = files.look();
        assert!(after.restart_needed);
        let builds = |look: &Installed, part| look.builds.part(part).map(str::to_owned).collect::<Vec<_>>();
        let changed = Part::ALL.into_iter().filter(|part| builds(&before, *part) != builds(&after, *part));
        assert_eq!(changed.collect::<Vec<_>>(), [Part::Kernel]);
        assert_eq!(files.builds(), before.builds, "pods are started from what the daemon keeps");
        // In the middle of an upgrade, or after a removal, the daemon's own files are the only ones.
        for name in ["vmm", "kernel", "full-kernel", "agent"] {
            std::fs::remove_file(dir.path().join(name)).unwrap();
        }
        assert_eq!(files.look(), before);
    }
}
