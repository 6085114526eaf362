//! Pipes that bytes wait in, between two sockets. Each is used again when it is empty.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::pipe::{PipeFlags, pipe_with};

/// Both ends of a pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) outlet: OwnedFd,
    pub(crate) inlet: OwnedFd,
}

/// The empty ones.
#[derive(Debug, Default)]
pub(crate) struct Pipes(Mutex<Vec<Pipe>>);

impl Pipes {
    /// An empty pipe.
    pub(crate) fn take(&self) -> io::Result<Pipe> {
        if let Some(pipe) = self.empty().pop() {
            return Ok(pipe);
        }
        let (outlet, inlet) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Pipe { outlet, inlet })
    }

    /// Whether there is one to take, which is made where there is none.
    pub(crate) fn has_one(&self) -> bool {
        let made = self.take();
        made.map(|pipe| self.give(pipe)).is_ok()
    }

    /// Takes back one that is empty.
    pub(crate) fn give(&self, pipe: Pipe) {
        self.empty().push(pipe);
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.empty().len()
    }

    fn empty(&self) -> MutexGuard<'_, Vec<Pipe>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
