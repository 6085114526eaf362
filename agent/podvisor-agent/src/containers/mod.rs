//! The pod's containers and their execs: who is there, and in what phase. One file per verb does the
//! work; this one only keeps the book, behind locks held for moments.
//!
//! ```text
//!             create                    start
//!  (none) ───────────▶ Creating ─▶ Created ─────▶ Running ──first process ends──▶ (ended)
//!                          │           │             │                               │
//!                          └─ fails ───┴── remove ───┴─────────── remove ────────────┘
//!                                            ▼
//!                                        Removing ─▶ (none)      a failed removal stays, to be asked again
//! ```

mod block_devices;
mod create;
mod exec;
mod mapped;
mod remove;
mod root;
mod start;
mod stdio;
mod update;
mod volumes;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use agent_container::cgroup::Cgroup;
use agent_container::exec::Joined;
use agent_container::launch::Failure;
use proto_agent::guest_path::CGROUP_PARENT;

pub(crate) use create::create;
pub(crate) use exec::exec;
pub(crate) use remove::{kill_all, remove};
pub(crate) use start::start;
pub(crate) use update::update;
pub(crate) use volumes::VolumeError;

use crate::launcher::Reports;
use crate::process::Process;
use crate::scratch::SCRATCH;

/// Bundles and mounted roots.
const DIRECTORY: &str = "/run/podvisor/containers";
/// Longest container or exec id, in bytes: CRI's are 64.
const ID_BYTES_MAX: usize = 128;
/// Containers of one pod, ended ones included: far above what a kubelet keeps.
const CONTAINERS_MAX: usize = 512;
/// Execs of one container that are remembered, running ones included; probes make many.
const EXECS_MAX: usize = 256;

/// Why something was not done to a container.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerError {
    #[error("`{0}` is no valid id")]
    InvalidId(String),
    #[error("container {0} is there already")]
    Exists(String),
    #[error("exec {0} is there already")]
    ExecExists(String),
    #[error("there is no container {0}")]
    NoContainer(String),
    #[error("container {container} has no exec {exec}")]
    NoExec { container: String, exec: String },
    #[error("container {id} is {phase}")]
    Phase { id: String, phase: &'static str },
    #[error("the pod has {CONTAINERS_MAX} containers, and can have no more")]
    TooManyContainers,
    #[error("container {0} has {EXECS_MAX} execs whose end or output nobody has taken")]
    TooManyExecs(String),
    #[error("cannot {what} of container {id}")]
    Io { what: &'static str, id: String, source: std::io::Error },
    #[error(transparent)]
    Slot(#[from] crate::slots::SlotError),
    #[error(transparent)]
    Image(#[from] crate::images::ImageError),
    #[error(transparent)]
    Volume(#[from] volumes::VolumeError),
    #[error(transparent)]
    Shared(#[from] crate::shared::SharedError),
    #[error(transparent)]
    ImageFile(#[from] agent_container::image_file::ImageFileError),
    #[error(transparent)]
    User(#[from] agent_container::users::UserError),
    #[error(transparent)]
    Spec(#[from] agent_container::spec::SpecError),
    #[error(transparent)]
    Devices(#[from] agent_container::devices::DevicesError),
    #[error(transparent)]
    WorkingDirectory(#[from] agent_container::working_directory::WorkingDirectoryError),
    #[error("user {uid} or group {gid} is not mapped in the pod's user namespace")]
    NotMapped { uid: u32, gid: u32 },
    #[error("cannot join the PID namespace of a container that does not run")]
    Target(#[source] Box<ContainerError>),
    #[error(transparent)]
    Limit(#[from] agent_container::limits::LimitError),
    #[error(transparent)]
    Launch(#[from] Failure),
}

/// Where a container is in its life.
#[derive(Debug)]
enum Phase {
    Creating,
    /// Held before exec.
    Created {
        first: Arc<Process>,
        reports: Reports,
    },
    /// Released; it may have ended since.
    Running {
        first: Arc<Process>,
    },
    Removing {
        first: Option<Arc<Process>>,
    },
}

impl Phase {
    fn name(&self) -> &'static str {
        match self {
            Phase::Creating => "being created",
            Phase::Created { .. } => "created and not started",
            Phase::Running { first } if first.has_ended() => "not running: it has ended",
            Phase::Running { .. } => "running",
            Phase::Removing { .. } => "being removed",
        }
    }

    fn first(&self) -> Option<&Arc<Process>> {
        match self {
            Phase::Creating => None,
            Phase::Created { first, .. } | Phase::Running { first } => Some(first),
            Phase::Removing { first } => first.as_ref(),
        }
    }
}

/// One container.
#[derive(Debug)]
pub(crate) struct Container {
    id: String,
    image_slot: u32,
    /// Slots of images that it mounts beside its own.
    volumes: Mutex<Vec<u32>>,
    /// Slots of disks that it has.
    disks: Mutex<Vec<u32>>,
    /// Its writable layer's, on the scratch disk: no other container of this guest has it.
    project: u32,
    cgroup: Cgroup,
    /// What its execs join; there once it has been built.
    joined: OnceLock<Joined>,
    phase: Mutex<Phase>,
    execs: Mutex<HashMap<String, Exec>>,
    /// One removal at a time.
    removal: tokio::sync::Mutex<()>,
}

/// One exec.
#[derive(Debug)]
enum Exec {
    Starting,
    Started(Arc<Process>),
}

impl Container {
    fn new(id: &str, image_slot: u32, project: u32) -> Container {
        Container {
            id: id.to_owned(),
            image_slot,
            volumes: Mutex::default(),
            disks: Mutex::default(),
            project,
            cgroup: Cgroup::new(&cgroup_path(id)),
            joined: OnceLock::new(),
            phase: Mutex::new(Phase::Creating),
            execs: Mutex::default(),
            removal: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    pub(crate) fn project(&self) -> u32 {
        self.project
    }

    /// Its first process, while it has one.
    pub(crate) fn first_pid(&self) -> Option<i32> {
        self.phase().first().filter(|first| !first.has_ended()).map(|first| first.pid())
    }

    /// Its bundle: the specification, sockets, and the mounted root.
    fn directory(&self) -> PathBuf {
        PathBuf::from(DIRECTORY).join(&self.id)
    }

    fn rootfs(&self) -> PathBuf {
        self.directory().join("rootfs")
    }

    /// Its writable layer.
    fn scratch(&self) -> PathBuf {
        PathBuf::from(SCRATCH).join(&self.id)
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn volumes(&self) -> MutexGuard<'_, Vec<u32>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disks(&self) -> MutexGuard<'_, Vec<u32>> {
        self.disks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn execs(&self) -> MutexGuard<'_, HashMap<String, Exec>> {
        self.execs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wrong_phase(&self, phase: &Phase) -> ContainerError {
        ContainerError::Phase { id: self.id.clone(), phase: phase.name() }
    }

    fn io(&self, what: &'static str) -> impl Fn(std::io::Error) -> ContainerError {
        move |source| ContainerError::Io { what, id: self.id.clone(), source }
    }

    /// Signals every process of it.
    pub(crate) fn signal_all(&self, signal: u32) -> std::io::Result<()> {
        if signal == nix::libc::SIGKILL.unsigned_abs() {
            self.cgroup.kill()
        } else {
            self.cgroup.signal(signal)
        }
    }
}

/// The book.
#[derive(Debug, Default)]
pub(crate) struct Containers {
    known: Mutex<HashMap<String, Arc<Container>>>,
    /// Projects given up to now; 0 is everyone's.
    projects: AtomicU32,
}

impl Containers {
    /// The container with this id.
    pub(crate) fn get(&self, id: &str) -> Result<Arc<Container>, ContainerError> {
        self.known().get(id).cloned().ok_or_else(|| ContainerError::NoContainer(id.to_owned()))
    }

    /// A container's first process, or its exec.
    pub(crate) fn process(&self, id: &str, exec_id: &str) -> Result<Arc<Process>, ContainerError> {
        let container = self.get(id)?;
        if exec_id.is_empty() {
            let phase = container.phase();
            return phase.first().cloned().ok_or_else(|| container.wrong_phase(&phase));
        }
        match container.execs().get(exec_id) {
            Some(Exec::Started(process)) => Ok(Arc::clone(process)),
            _ => Err(ContainerError::NoExec { container: id.to_owned(), exec: exec_id.to_owned() }),
        }
    }

    /// The host was told how an exec ended. One that it has all of is forgotten.
    pub(crate) fn exec_told(&self, id: &str, exec_id: &str) {
        if let Ok(process) = self.process(id, exec_id) {
            process.was_told();
            self.settle(id, exec_id, &process);
        }
    }

    /// A connection that took an exec's output has ended. With a host that goes away in the middle of it, the
    /// exec goes too: nobody will ask for it again.
    pub(crate) fn output_served(&self, id: &str, exec_id: &str, broke_off: bool) {
        let Ok(process) = self.process(id, exec_id) else { return };
        if !broke_off {
            return self.settle(id, exec_id, &process);
        }
        let Ok(container) = self.get(id) else { return };
        let exec_id = exec_id.to_owned();
        tokio::spawn(async move {
            process.hang_up().await;
            container.execs().remove(&exec_id);
        });
    }

    fn settle(&self, id: &str, exec_id: &str, process: &Process) {
        if process.is_over()
            && let Ok(container) = self.get(id)
        {
            container.execs().remove(exec_id);
        }
    }

    /// The PID namespace of a running container, for another one to join.
    fn pid_namespace(&self, id: &str) -> Result<PathBuf, ContainerError> {
        let target = |error| ContainerError::Target(Box::new(error));
        let container = self.get(id).map_err(target)?;
        let phase = container.phase();
        match &*phase {
            Phase::Running { first } if !first.has_ended() => {
                Ok(PathBuf::from(format!("/proc/{}/ns/pid", first.pid())))
            }
            other => Err(target(container.wrong_phase(other))),
        }
    }

    fn reserve(&self, id: &str, image_slot: u32) -> Result<Arc<Container>, ContainerError> {
        check_id(id)?;
        let mut known = self.known();
        if known.contains_key(id) {
            return Err(ContainerError::Exists(id.to_owned()));
        }
        if known.len() >= CONTAINERS_MAX {
            return Err(ContainerError::TooManyContainers);
        }
        let project = self.projects.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let container = Arc::new(Container::new(id, image_slot, project));
        known.insert(id.to_owned(), Arc::clone(&container));
        Ok(container)
    }

    fn forget(&self, id: &str) {
        self.known().remove(id);
    }

    /// All that are there, in any order.
    pub(crate) fn all(&self) -> Vec<Arc<Container>> {
        self.known().values().cloned().collect()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<Container>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ids become file names, cgroup names and libcontainer's: its characters, and no dot files.
fn check_id(id: &str) -> Result<(), ContainerError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'+');
    if id.is_empty() || id.len() > ID_BYTES_MAX || id.starts_with('.') || !id.bytes().all(plain) {
        return Err(ContainerError::InvalidId(id.chars().take(ID_BYTES_MAX).collect()));
    }
    Ok(())
}

/// A container's cgroup below the mount.
fn cgroup_path(id: &str) -> String {
    format!("{CGROUP_PARENT}/{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_no_file_name_is_refused() {
        for id in ["", ".", "..", ".hidden", "a/b", "a b", "a\0", &"x".repeat(ID_BYTES_MAX + 1)] {
            assert!(matches!(check_id(id), Err(ContainerError::InvalidId(_))), "{id:?}");
        }
        check_id("0a1b-C_d.e").unwrap();
    }

    #[test]
    fn an_id_is_taken_once() {
        let containers = Containers::default();
        containers.reserve("c1", 17).unwrap();
        assert!(matches!(containers.reserve("c1", 18), Err(ContainerError::Exists(_))));
        containers.forget("c1");
        containers.reserve("c1", 17).unwrap();
    }

    #[test]
    fn containers_are_bounded() {
        let containers = Containers::default();
        for number in 0..CONTAINERS_MAX {
            containers.reserve(&format!("c{number}"), 17).unwrap();
        }
        assert!(matches!(containers.reserve("more", 17), Err(ContainerError::TooManyContainers)));
    }

    #[test]
    fn a_container_being_created_has_no_process_yet() {
        let containers = Containers::default();
        containers.reserve("c1", 17).unwrap();
        assert!(matches!(containers.process("c1", ""), Err(ContainerError::Phase { .. })));
        assert!(matches!(containers.process("c1", "e1"), Err(ContainerError::NoExec { .. })));
        assert!(matches!(containers.process("c2", ""), Err(ContainerError::NoContainer(_))));
    }

    #[test]
    fn only_a_running_containers_pid_namespace_can_be_joined() {
        let containers = Containers::default();
        containers.reserve("c1", 17).unwrap();
        for id in ["c1", "c2"] {
            assert!(matches!(containers.pid_namespace(id), Err(ContainerError::Target(_))), "{id}");
        }
    }
}
