//! The first of the threads that serve a share. This thread is as old as the process: its credentials and filters are set
//! before the rest of the process gives up the means to, and a thread that another one starts later could not
//! have them. The thread sleeps until a driver activates the device, and starts the others when requests come at once: they
//! have what it has, and end with the session.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use fuse_backend_rs::api::server::Server;
use virtio_queue::Queue;
use vmm_sys_util::eventfd::EventFd;

use super::locks::Waiting;
use super::share::separate_umask;
use super::worker::FsWorker;
use super::{DEVICE, Share};
use crate::virtio::DeviceError;
use crate::virtio::worker::Stop;

/// A job for a thread with a share.
struct Job {
    worker: FsWorker,
    stop: Stop,
    /// The driver begins anew: what was open is closed.
    afresh: bool,
    done: Sender<Vec<Queue>>,
}

/// A thread that serves a share, for one device at a time. The thread ends with its last handle.
#[derive(Clone)]
pub struct ShareThread {
    jobs: Sender<Job>,
    share: Arc<Share>,
}

impl std::fmt::Debug for ShareThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShareThread").field("share", &self.share).finish_non_exhaustive()
    }
}

impl ShareThread {
    /// Starts the thread, which first runs `setup`; its error is this function's.
    pub fn start<E: Send + 'static>(
        share: Share,
        setup: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> io::Result<Result<ShareThread, E>> {
        let (share, waiting) = (Arc::new(share), Waiting::new()?);
        let (jobs, queue) = channel::<Job>();
        let (ready, is_ready) = channel();
        let served = share.clone();
        std::thread::Builder::new().name(DEVICE.to_owned()).spawn(move || {
            let set_up = separate_umask().map(|()| setup());
            let failed = !matches!(set_up, Ok(Ok(())));
            if ready.send(set_up).is_err() || failed {
                return;
            }
            serve(&served, &waiting, &queue);
        })?;
        match is_ready.recv() {
            Ok(Ok(Ok(()))) => Ok(Ok(ShareThread { jobs, share })),
            Ok(Ok(Err(error))) => Ok(Err(error)),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(io::Error::other("the share's thread panicked as it started")),
        }
    }

    pub(super) fn share(&self) -> &Share {
        &self.share
    }

    /// Ends the waits for locks of these processes, which the guest knows by these numbers: they get EINTR. Each process
    /// must have a signal that ends it, for a guest's kernel takes the answer for one. The call does not wait. A request
    /// that is taken at the same time may be missed: the caller names a process again as long as it is there.
    pub fn interrupt_lock_waits(&self, pids: &[u32]) {
        self.share.interrupts().add(pids);
    }

    /// Requests that begin from now on have these supplementary groups on files of the host, and no others. The call does not
    /// wait.
    pub fn set_groups(&self, groups: &[u32]) {
        self.share.set_groups(groups);
    }

    /// Has the queues served until the session ends.
    pub(super) fn begin(&self, worker: FsWorker, afresh: bool) -> Result<Session, DeviceError> {
        let failed = |message: String| DeviceError { device: DEVICE, message };
        let (event, stop) = Stop::new().map_err(|error| failed(format!("no event: {error}")))?;
        let (done, queues) = channel();
        let job = Job { worker, stop, afresh, done };
        self.jobs.send(job).map_err(|_| failed("its thread had panicked".into()))?;
        Ok(Session { event, queues })
    }
}

/// Requests that wait for locks are kept over a pause, as what is open: the driver still has their chains in the queue.
fn serve(share: &Arc<Share>, waiting: &Waiting, jobs: &Receiver<Job>) {
    let server = Server::new(share.clone());
    for Job { worker, stop, afresh, done } in jobs {
        if afresh {
            share.forget_all();
            waiting.clear();
        }
        // A session that wants them no more has gone with its VM.
        let _ = done.send(worker.run(&server, share, waiting, stop));
    }
}

/// Queues that are being served. Dropping it waits until they are not any more.
#[derive(Debug)]
pub(super) struct Session {
    event: EventFd,
    queues: Receiver<Vec<Queue>>,
}

impl Session {
    /// Ends it and takes the queues as they stand; `None` if the thread has panicked.
    pub(super) fn end(self) -> Option<Vec<Queue>> {
        self.stop()
    }

    fn stop(&self) -> Option<Vec<Queue>> {
        // Refused only when the counter is full, and then the event is readable already.
        let _ = self.event.write(1);
        self.queues.recv().ok()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}
