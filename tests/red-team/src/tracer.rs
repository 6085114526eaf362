//! The tracer of a VMM's threads and its share's (ptrace(2)). It follows them from the program's start, takes
//! walls away as they are raised, and holds one thread later, to make calls with it. All of it has to be done
//! by one thread of this program.
//!
//! ```text
//!   seize ──► starting: every call stops ──► free: nothing stops ──► one thread held
//! ```

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::walls::{Passage, Standing};

/// Longest wait for a thread to stop, or for a call to return.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Pause between two looks at threads that all run.
const PAUSE: Duration = Duration::from_micros(200);

/// `PTRACE_EVENT_STOP` and the events with a new thread (include/uapi/linux/ptrace.h).
const STOPPED: i32 = libc::PTRACE_EVENT_STOP;
const STARTED: [i32; 3] = [libc::PTRACE_EVENT_FORK, libc::PTRACE_EVENT_VFORK, libc::PTRACE_EVENT_CLONE];

/// What happened to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It is about to enter a call, or has left one.
    Call,
    /// It stopped because it was asked to, or has just started.
    Stop,
    /// It started a thread or a program, or got a signal. It waits to go on.
    Other(Option<Signal>),
    /// It is no more. A signal killed it, or it ended.
    Gone(Option<Signal>),
}

#[derive(Debug)]
pub(crate) struct Tracer {
    threads: BTreeSet<Pid>,
    standing: Standing,
    /// Threads inside a call that was skipped.
    skipping: BTreeSet<Pid>,
    is_starting: bool,
}

impl Tracer {
    /// Begins with a process that runs, and has one thread.
    pub(crate) fn seize(process: Pid, standing: Standing) -> anyhow::Result<Tracer> {
        let options = Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_EXITKILL;
        ptrace::seize(process, options).context("tracing the VMM")?;
        let threads = BTreeSet::from([process]);
        let mut tracer = Tracer { threads, standing, skipping: BTreeSet::new(), is_starting: true };
        tracer.hold(process)?;
        ptrace::syscall(process, None)?;
        Ok(tracer)
    }

    /// Lets the threads run until `is_done`.
    pub(crate) fn run_until(&mut self, mut is_done: impl FnMut() -> bool) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while !is_done() {
            if Instant::now() > end {
                bail!("the VMM did not start in {PATIENCE:?}");
            }
            if !self.look_at_all()? {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// From now on no call stops.
    pub(crate) fn set_free(&mut self) {
        self.is_starting = false;
    }

    /// Returns true if the process was traced and is not seen gone.
    pub(crate) fn has(&self, process: Pid) -> bool {
        self.threads.contains(&process)
    }

    /// Stops a thread that runs.
    pub(crate) fn hold(&mut self, thread: Pid) -> anyhow::Result<()> {
        loop {
            // Another stop on the way takes the place of this one.
            ptrace::interrupt(thread)?;
            match self.wait_for(thread)? {
                Seen::Stop => return Ok(()),
                Seen::Gone(signal) => bail!("thread {thread} is gone: {signal:?}"),
                Seen::Call => self.go_on(thread, None)?,
                Seen::Other(signal) => self.go_on(thread, signal)?,
            }
        }
    }

    /// Waits for one thread, while the others run.
    pub(crate) fn wait_for(&mut self, thread: Pid) -> anyhow::Result<Seen> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(seen) = self.look_at(thread)? {
                return Ok(seen);
            }
            if !self.look_at_all_but(Some(thread))? {
                std::thread::sleep(PAUSE);
            }
        }
        let call = std::fs::read_to_string(format!("/proc/{thread}/wchan")).unwrap_or_default();
        bail!("thread {thread} did not stop in {PATIENCE:?}; it waits in {call:?}")
    }

    /// Waits until every thread is gone: they were killed.
    pub(crate) fn bury(&mut self) {
        let end = Instant::now() + PATIENCE;
        while !self.threads.is_empty() && Instant::now() < end {
            if !self.look_at_all().unwrap_or(false) {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Looks at each thread once. Returns true if something happened.
    fn look_at_all(&mut self) -> anyhow::Result<bool> {
        self.look_at_all_but(None)
    }

    fn look_at_all_but(&mut self, held: Option<Pid>) -> anyhow::Result<bool> {
        let mut is_news = false;
        for thread in self.threads.clone() {
            if Some(thread) == held {
                continue;
            }
            let Some(seen) = self.look_at(thread)? else { continue };
            is_news = true;
            match seen {
                Seen::Call if self.is_starting => self.pass(thread)?,
                Seen::Call | Seen::Stop => self.go_on(thread, None)?,
                Seen::Other(signal) => self.go_on(thread, signal)?,
                Seen::Gone(_) => {}
            }
        }
        Ok(is_news)
    }

    fn look_at(&mut self, thread: Pid) -> anyhow::Result<Option<Seen>> {
        let status = match waitpid(thread, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)) {
            Ok(status) => status,
            // A signal without a name in the library: a realtime one.
            Err(Errno::EINVAL) => return Ok(Some(Seen::Other(None))),
            Err(Errno::ECHILD) => return Ok(Some(self.gone(thread, None))),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(match status {
            WaitStatus::StillAlive => return Ok(None),
            WaitStatus::Exited(..) => self.gone(thread, None),
            WaitStatus::Signaled(_, signal, _) => self.gone(thread, Some(signal)),
            WaitStatus::PtraceSyscall(_) => Seen::Call,
            WaitStatus::PtraceEvent(_, _, STOPPED) => Seen::Stop,
            WaitStatus::PtraceEvent(_, _, event) => {
                if STARTED.contains(&event) {
                    self.threads.insert(Pid::from_raw(i32::try_from(ptrace::getevent(thread)?)?));
                }
                Seen::Other(None)
            }
            WaitStatus::Stopped(_, signal) => Seen::Other(Some(signal)),
            WaitStatus::Continued(_) => Seen::Other(None),
        }))
    }

    fn gone(&mut self, thread: Pid, signal: Option<Signal>) -> Seen {
        self.threads.remove(&thread);
        Seen::Gone(signal)
    }

    /// Lets a call into the kernel, or not.
    fn pass(&mut self, thread: Pid) -> anyhow::Result<()> {
        let mut registers = ptrace::getregs(thread)?;
        if ptrace::syscall_info(thread)?.op == libc::PTRACE_SYSCALL_INFO_EXIT {
            if self.skipping.remove(&thread) {
                registers.rax = 0;
                ptrace::setregs(thread, registers)?;
            }
        } else {
            match self.standing.passage(&registers) {
                Passage::AsItIs => return self.go_on(thread, None),
                Passage::Skipped => {
                    registers.orig_rax = u64::MAX;
                    self.skipping.insert(thread);
                }
                Passage::With(first) => registers.rdi = first,
            }
            ptrace::setregs(thread, registers)?;
        }
        self.go_on(thread, None)
    }

    fn go_on(&self, thread: Pid, signal: Option<Signal>) -> anyhow::Result<()> {
        let went =
            if self.is_starting { ptrace::syscall(thread, signal) } else { ptrace::cont(thread, signal) };
        match went {
            // It was killed meanwhile, and its end is still to be seen.
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
