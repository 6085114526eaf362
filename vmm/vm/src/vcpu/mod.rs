//! A vCPU: a KVM descriptor, a thread running it, and messages to the thread.
//!
//! ```text
//!              ┌──────── Resume ────────┐
//!              │                        ▼
//!   start ─> Paused <──── Pause ──── Running ──fault, reset──> Finished (reports why)
//!              │                        │
//!              └──────── Finish ────────┴────────────────────> Finished
//! ```
//!
//! There are no shared flags: a caller sends a message and kicks the thread out of the guest (`kick`). `exit`
//! handles exits.

mod exit;
mod kick;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};

use kvm_ioctls::VcpuFd;
use nix::sys::eventfd::EventFd;
use proto_vmm::{Registers, StopReason};

use crate::bus::Bus;
use crate::clock::Milestones;
use crate::counters::Counters;
use crate::snapshot::{VcpuSnapshot, VcpuSnapshotError};

use exit::Next;

/// A vCPU's report of the VM's end.
#[derive(Debug)]
pub(crate) struct VcpuEnd {
    pub(crate) reason: StopReason,
    pub(crate) registers: Option<Registers>,
}

/// A message to the thread.
#[derive(Debug)]
enum Command {
    Resume,
    /// Answered once out of the guest.
    Pause(Sender<()>),
    /// Answered only while paused.
    Save(SavePlan, Sender<Result<Box<VcpuSnapshot>, VcpuSnapshotError>>),
    Finish,
}

/// The parts of a vCPU's state that depend on the host.
#[derive(Clone, Debug)]
pub(crate) struct SavePlan {
    /// MSRs known to KVM.
    pub(crate) msrs: Arc<[u32]>,
    /// Bytes of the extended state.
    pub(crate) xsave_bytes: usize,
}

/// The thread cannot be reached, or refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum VcpuError {
    #[error("cannot start the thread of vCPU {id}")]
    Thread { id: u8, source: std::io::Error },
    #[error("vCPU {id} has ended")]
    Ended { id: u8 },
    #[error(transparent)]
    State(#[from] VcpuSnapshotError),
}

/// The parts of the VM used by every vCPU thread.
#[derive(Clone)]
pub(crate) struct VcpuContext {
    pub(crate) bus: Arc<Bus>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) milestones: Arc<Milestones>,
    pub(crate) ends: Sender<VcpuEnd>,
    /// Written after each message to `ends`.
    pub(crate) ended: Arc<EventFd>,
}

/// A thread for a vCPU, under its name and without the vCPU yet. If its start fails, the caller still has the
/// vCPU.
#[derive(Debug)]
pub(crate) struct VcpuThread {
    id: u8,
    vcpu: Sender<VcpuFd>,
    commands: Sender<Command>,
    thread: JoinHandle<()>,
}

impl VcpuThread {
    /// Starts the thread, and returns once it has its name: the daemon finds the threads of vCPUs by it.
    pub(crate) fn start(id: u8, context: VcpuContext) -> Result<VcpuThread, VcpuError> {
        kick::install().map_err(|source| VcpuError::Thread { id, source })?;
        let (commands, inbox) = channel();
        let (vcpu, given) = channel();
        let (named, has_name) = channel();
        // A new thread first takes its name.
        let run = move || {
            let _ = named.send(());
            // Without a vCPU the starter has given up.
            if let Ok(fd) = given.recv() {
                Runner { id, fd, inbox, context }.run();
            }
        };
        let spawned = Builder::new().name(format!("vcpu{id}")).spawn(run);
        let thread = spawned.map_err(|source| VcpuError::Thread { id, source })?;
        has_name.recv().map_err(|_| VcpuError::Ended { id })?;
        Ok(VcpuThread { id, vcpu, commands, thread })
    }

    /// Gives the thread its vCPU, paused.
    pub(crate) fn take(self, fd: VcpuFd) -> Vcpu {
        let VcpuThread { id, vcpu, commands, thread } = self;
        // It waits for this.
        let _ = vcpu.send(fd);
        Vcpu { id, commands, thread: Some(thread) }
    }
}

/// The VM's handle of a vCPU thread. Dropping it finishes the thread and waits for it.
#[derive(Debug)]
pub(crate) struct Vcpu {
    id: u8,
    commands: Sender<Command>,
    thread: Option<JoinHandle<()>>,
}

impl Vcpu {
    pub(crate) fn resume(&self) -> Result<(), VcpuError> {
        self.send(Command::Resume)
    }

    /// Returns once the vCPU is out of the guest.
    pub(crate) fn pause(&self) -> Result<(), VcpuError> {
        let (answer, answered) = channel();
        self.send(Command::Pause(answer))?;
        answered.recv().map_err(|_| VcpuError::Ended { id: self.id })
    }

    /// Returns the state of a paused vCPU.
    pub(crate) fn save(&self, plan: SavePlan) -> Result<Box<VcpuSnapshot>, VcpuError> {
        let (answer, answered) = channel();
        self.send(Command::Save(plan, answer))?;
        Ok(answered.recv().map_err(|_| VcpuError::Ended { id: self.id })??)
    }

    /// Asks the thread to end; dropping waits for it.
    pub(crate) fn finish(&self) {
        // A finished thread need not be asked.
        let _ = self.send(Command::Finish);
    }

    fn send(&self, command: Command) -> Result<(), VcpuError> {
        self.commands.send(command).map_err(|_| VcpuError::Ended { id: self.id })?;
        if let Some(thread) = &self.thread {
            kick::kick(thread);
        }
        Ok(())
    }
}

impl Drop for Vcpu {
    fn drop(&mut self) {
        self.finish();
        if let Some(thread) = self.thread.take() {
            // There is no error to handle: a panic ends the process.
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Paused,
    Finished,
}

/// A vCPU thread's own state.
struct Runner {
    id: u8,
    fd: VcpuFd,
    inbox: Receiver<Command>,
    context: VcpuContext,
}

impl Runner {
    fn run(mut self) {
        let _kickable = kick::accept(&mut self.fd);
        let mut phase = Phase::Paused;
        while phase != Phase::Finished {
            phase = match phase {
                Phase::Paused => self.wait(),
                Phase::Running => self.enter(),
                Phase::Finished => break,
            };
        }
    }

    /// Waits for one message while paused.
    fn wait(&mut self) -> Phase {
        match self.inbox.recv() {
            Ok(Command::Resume) => Phase::Running,
            Ok(Command::Pause(answer)) => {
                // The caller may be gone.
                let _ = answer.send(());
                Phase::Paused
            }
            Ok(Command::Save(plan, answer)) => {
                let saved = VcpuSnapshot::save(&self.fd, &plan.msrs, plan.xsave_bytes);
                let _ = answer.send(saved.map(Box::new));
                Phase::Paused
            }
            Ok(Command::Finish) | Err(_) => Phase::Finished,
        }
    }

    /// Takes a waiting message, or else enters the guest once.
    fn enter(&mut self) -> Phase {
        // Before checking for messages: a kick after the check must not be lost.
        self.fd.set_kvm_immediate_exit(0);
        match self.inbox.try_recv() {
            Ok(Command::Pause(answer)) => {
                if let Err(reason) = self.complete_exit() {
                    return self.end(reason);
                }
                let _ = answer.send(());
                return Phase::Paused;
            }
            // There may be more messages whose kicks arrived together with this one's.
            Ok(Command::Save(_, answer)) => {
                let _ = answer.send(Err(VcpuSnapshotError::Running));
                return Phase::Running;
            }
            Ok(Command::Resume) => return Phase::Running,
            Ok(Command::Finish) | Err(TryRecvError::Disconnected) => return Phase::Finished,
            Err(TryRecvError::Empty) => {}
        }
        if self.id == 0 {
            self.context.milestones.guest_entered();
        }
        match exit::run(&mut self.fd, &self.context.bus, &self.context.counters) {
            Next::Enter => Phase::Running,
            Next::Stop(reason) => self.end(reason),
        }
    }

    /// Lets KVM finish the instruction of the last exit, so that the saved state is complete (KVM API,
    /// "immediate_exit").
    fn complete_exit(&mut self) -> Result<(), StopReason> {
        self.fd.set_kvm_immediate_exit(1);
        let next = exit::run(&mut self.fd, &self.context.bus, &self.context.counters);
        self.fd.set_kvm_immediate_exit(0);
        match next {
            Next::Enter => Ok(()),
            Next::Stop(reason) => Err(reason),
        }
    }

    /// Reports the reason for the VM's end.
    fn end(&mut self, reason: StopReason) -> Phase {
        let registers = exit::registers(&self.fd);
        // The VM may be gone already. Then there is no receiver.
        let _ = self.context.ends.send(VcpuEnd { reason, registers });
        let _ = self.context.ended.write(1);
        Phase::Finished
    }
}
