//! The pipes of one stream: buffers for bytes between two sockets. An empty pipe is reused; one with bytes in
//! it is never put back.

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

/// The empty pipes.
#[derive(Debug, Default)]
pub(crate) struct PipePool(Mutex<Vec<Pipe>>);

impl PipePool {
    /// Takes an empty pipe, or makes one.
    pub(crate) fn take(&self) -> io::Result<Pipe> {
        if let Some(pipe) = self.empty().pop() {
            return Ok(pipe);
        }
        let (outlet, inlet) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Pipe { outlet, inlet })
    }

    /// Returns whether there is a pipe to take, or one could be made.
    pub(crate) fn has_one(&self) -> bool {
        let made = self.take();
        made.map(|pipe| self.put_back(pipe)).is_ok()
    }

    /// Takes back an empty pipe.
    pub(crate) fn put_back(&self, pipe: Pipe) {
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
