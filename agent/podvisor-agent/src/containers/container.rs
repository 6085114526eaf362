//! One container: its phase, its execs, what it holds of the guest, and where its files are.
//!
//! ```text
//!             create                    start
//!  (none) ───────────▶ Creating ─▶ Created ─────▶ Running ──first process ends──▶ (ended)
//!                          │           │             │                               │
//!                          └─ fails ───┴── remove ───┴─────────── remove ────────────┘
//!                                            ▼
//!                                        Removing ─▶ (none)      a failed removal stays, to be asked again
//! ```

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use agent_container::cgroup::Cgroup;
use agent_container::exec::Joined;

use crate::containers::error::ContainerError;
use crate::containers::id::cgroup_path;
use crate::launcher::Reports;
use crate::process::Process;
use crate::scratch::SCRATCH;

/// Bundles and mounted roots.
const DIRECTORY: &str = "/run/podvisor/containers";

/// Where a container is in its life.
#[derive(Debug)]
pub(crate) enum Phase {
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
    /// Slots of images that it mounts beside its own.
    volumes: Mutex<Vec<u32>>,
    /// Slots of disks that it has.
    disks: Mutex<Vec<u32>>,
    /// Its writable layer's, on the scratch disk: no other container of this guest has it.
    project: u32,
    cgroup: Cgroup,
    /// What its execs join; there once it has been built.
    pub(crate) joined: OnceLock<Joined>,
    phase: Mutex<Phase>,
    execs: Mutex<HashMap<String, Exec>>,
    /// One removal at a time.
    pub(crate) removal: tokio::sync::Mutex<()>,
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
    pub(crate) fn directory(&self) -> PathBuf {
        PathBuf::from(DIRECTORY).join(&self.id)
    }

    pub(crate) fn rootfs(&self) -> PathBuf {
        self.directory().join("rootfs")
    }

    /// Its writable layer.
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

    pub(crate) fn wrong_phase(&self, phase: &Phase) -> ContainerError {
        ContainerError::Phase { id: self.id.clone(), phase: phase.name() }
    }

    pub(crate) fn io(&self, what: &'static str) -> impl Fn(std::io::Error) -> ContainerError {
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
