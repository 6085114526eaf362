//! One container: its phase, its execs, its slots, and the paths of its files.
//!
//! ```text
//!             create                    start
//!  (none) ───────────▶ Creating ─▶ Created ─────▶ Running ──first process ends──▶ (ended)
//!                          │           │             │                               │
//!                          └─ fails ───┴── remove ───┴─────────── remove ────────────┘
//!                                            ▼
//!                                        Removing ─▶ (none)      a failed removal stays, and may be repeated
//! ```

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use agent_container::cgroup::Cgroup;
use agent_container::exec::ExecTemplate;

use crate::containers::error::ContainerError;
use crate::containers::id::cgroup_path;
use crate::launcher::Reports;
use crate::process::Process;
use crate::scratch::SCRATCH;

/// Parent of the containers' bundles.
const DIRECTORY: &str = "/run/podvisor/containers";

/// A container's phase of life.
#[derive(Debug)]
pub(crate) enum Phase {
    Creating,
    /// The first process is held before exec.
    Created {
        first: Arc<Process>,
        reports: Reports,
    },
    /// The first process is released, and may have ended since.
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
            Phase::Running { first } if first.is_collected() => "not running: it has ended",
            Phase::Running { .. } => "running",
            Phase::Removing { .. } => "being removed",
        }
    }

    pub(crate) fn first(&self) -> Option<&Arc<Process>> {
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
    pub(crate) image_slot: u32,
    /// Slots of the images mounted in addition to the container's own.
    volumes: Mutex<Vec<u32>>,
    /// Slots of the container's disks.
    disks: Mutex<Vec<u32>>,
    /// Quota project of the writable layer on the scratch disk. The number is unique among the guest's
    /// containers.
    project: u32,
    cgroup: Cgroup,
    /// Template for execs. Set once the specification is complete.
    pub(crate) exec_template: OnceLock<ExecTemplate>,
    phase: Mutex<Phase>,
    execs: Mutex<HashMap<String, Exec>>,
    /// Held through a removal.
    pub(crate) removal: tokio::sync::Mutex<()>,
    /// Held while a thread makes a writable layer, also after its caller gave up.
    pub(crate) layers: Arc<tokio::sync::Mutex<()>>,
}

/// One exec.
#[derive(Debug)]
pub(crate) enum Exec {
    Starting,
    Started(Arc<Process>),
}

impl Container {
    pub(super) fn new(id: &str, image_slot: u32, project: u32) -> Container {
        Container {
            id: id.to_owned(),
            image_slot,
            volumes: Mutex::default(),
            disks: Mutex::default(),
            project,
            cgroup: Cgroup::new(&cgroup_path(id)),
            exec_template: OnceLock::new(),
            phase: Mutex::new(Phase::Creating),
            execs: Mutex::default(),
            removal: tokio::sync::Mutex::default(),
            layers: Arc::default(),
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

    /// Pid of the first process while it runs.
    pub(crate) fn first_pid(&self) -> Option<i32> {
        self.phase().first().filter(|first| !first.is_collected()).map(|first| first.pid())
    }

    /// Directory of the bundle: the specification, sockets, and the mounted root.
    pub(crate) fn directory(&self) -> PathBuf {
        PathBuf::from(DIRECTORY).join(&self.id)
    }

    pub(crate) fn rootfs(&self) -> PathBuf {
        self.directory().join("rootfs")
    }

    /// Directory of the writable layer.
    pub(crate) fn scratch(&self) -> PathBuf {
        PathBuf::from(SCRATCH).join(&self.id)
    }

    pub(crate) fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn volumes(&self) -> MutexGuard<'_, Vec<u32>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn disks(&self) -> MutexGuard<'_, Vec<u32>> {
        self.disks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn execs(&self) -> MutexGuard<'_, HashMap<String, Exec>> {
        self.execs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error for a call not allowed in this phase.
    pub(crate) fn wrong_phase(&self, phase: &Phase) -> ContainerError {
        ContainerError::Phase { id: self.id.clone(), phase: phase.name() }
    }

    /// Makes an error of this container from an I/O error; `what` completes "cannot … of container".
    pub(crate) fn io(&self, what: &'static str) -> impl Fn(std::io::Error) -> ContainerError {
        move |source| ContainerError::Io { what, id: self.id.clone(), source }
    }

    /// Signals every process of the container. Returns the processes still alive after a SIGKILL.
    pub(crate) fn signal_all(&self, signal: u32) -> std::io::Result<Vec<i32>> {
        if signal == nix::libc::SIGKILL.unsigned_abs() {
            self.cgroup.kill()?;
            return self.cgroup.processes();
        }
        self.cgroup.signal(signal).map(|()| Vec::new())
    }
}
