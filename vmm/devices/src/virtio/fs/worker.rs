//! The share's back end: takes FUSE requests off the queues and has them answered, several at once. A request that
//! waits for a lock keeps its chain while others are served.
//!
//! Each thread takes a request, has another thread see to what comes next, and carries its own out:
//!
//! ```text
//!   waits for an event ──a queue's──► takes a request ──► carries it out ──► answers
//!        ▲       ▲                      │ none left          (no lock held)    │
//!        │       └──────────────────────┘◄─────────────────────────────────────┘
//!        └── started by the one that takes a request while nobody waits, up to THREADS_MAX; ends when it had nothing to do for LINGER
//! ```
//!
//! Events are edge-triggered: each of them wakes one of the threads that wait. The driver need not notify between an answer
//! and the look for the next request. The answers come in any order, as a driver has to expect.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Instant;

use fuse_backend_rs::abi::fuse_abi::OutHeader;
use fuse_backend_rs::api::server::Server;
use virtio_queue::Queue;
use vm_memory::ByteValued as _;
use vmm_sys_util::eventfd::EventFd;

use super::locks::{Wait, Waiting};
use super::request::{answer, lock_request};
use super::share::{is_held, separate_umask};
use super::{DEVICE, Share};
use crate::virtio::Interrupt;
use crate::virtio::chain::Chain;
use crate::virtio::crew::{Crew, LINGER};
use crate::virtio::ring::{Described, Faults, Ring, Taken};
use crate::virtio::worker::{Stop, Wakeups, Woken};

/// Threads that serve one share, and so requests that a file system of the host may keep waiting before all wait.
pub(super) const THREADS_MAX: usize = 16;

/// Requests that a thread takes before it looks whether there is other work.
const BATCH: usize = 16;

/// Queues: what must not wait (FORGET, INTERRUPT), and requests.
pub(super) const QUEUES: usize = 2;
/// The queue of requests, and so of those that wait for locks.
const REQUESTS: usize = 1;
/// Sources of wake-ups beside the queues: waits that are to end, and those that are to be tried again.
const INTERRUPTS: u8 = QUEUES as u8;
const WAITS: u8 = INTERRUPTS + 1;

/// Bytes of an answer without content.
const ANSWER_BYTES: u32 = size_of::<OutHeader>() as u32;

/// A share at work.
#[derive(Debug)]
pub(super) struct FsWorker {
    queues: Mutex<Queues>,
    events: [EventFd; QUEUES],
    interrupt: Arc<dyn Interrupt>,
    faults: Faults,
}

#[derive(Debug)]
struct Queues {
    rings: [Ring; QUEUES],
    crew: Crew,
}

/// The threads of one session, and what they have in common.
struct Session<'a> {
    worker: &'a FsWorker,
    server: &'a Server<Arc<Share>>,
    share: &'a Share,
    waiting: &'a Waiting,
    wakeups: Wakeups,
}

impl FsWorker {
    pub(super) fn new(
        rings: [Ring; QUEUES],
        events: [EventFd; QUEUES],
        interrupt: Arc<dyn Interrupt>,
        faults: Faults,
    ) -> FsWorker {
        FsWorker {
            queues: Mutex::new(Queues { rings, crew: Crew::new(THREADS_MAX) }),
            events,
            interrupt,
            faults,
        }
    }

    /// Serves until `stop` is readable, then gives the queues back. Requests that wait by then stay in `waiting`.
    pub(super) fn run(
        self,
        server: &Server<Arc<Share>>,
        share: &Share,
        waiting: &Waiting,
        stop: Stop,
    ) -> Vec<Queue> {
        match self.wakeups(share, waiting, stop) {
            Ok(wakeups) => {
                let session = Session { worker: &self, server, share, waiting, wakeups };
                std::thread::scope(|scope| session.serve(scope, true));
            }
            Err(error) => tracing::error!(%error, "the share's thread cannot wait for requests"),
        }
        let queues = self.queues.into_inner().unwrap_or_else(PoisonError::into_inner);
        queues.rings.into_iter().map(Ring::into_queue).collect()
    }

    fn wakeups(&self, share: &Share, waiting: &Waiting, stop: Stop) -> io::Result<Wakeups> {
        let wakeups = Wakeups::new(stop)?;
        for (event, number) in self.events.iter().zip(0..) {
            wakeups.add(event, number, true)?;
            // A share that goes on after a pause may have requests that nobody notifies of again.
            event.write(1)?;
        }
        // Processes that were named before are none of this session.
        share.interrupts().take();
        wakeups.add(share.interrupts(), INTERRUPTS, true)?;
        wakeups.add(waiting, WAITS, true)?;
        Ok(wakeups)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a chain back to the driver. Without bytes written, the request made no sense or its answer had no place.
    fn complete(&self, queues: &mut Queues, index: usize, taken: Taken, written: Option<u32>) {
        // A chain with a fault was counted when it was taken.
        if written.is_none() && taken.fault.is_none() {
            self.faults.count();
        }
        queues.rings[index].complete(taken, written.unwrap_or(0));
        queues.rings[index].signal(&*self.interrupt);
    }

    /// Answers a request for a lock, and gives its chain back.
    fn answer_wait(&self, wait: &Wait, result: io::Result<()>) {
        let error = result.map_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
        let header = OutHeader { len: ANSWER_BYTES, error, unique: wait.unique };
        let mut queues = self.queues();
        let placed = queues.rings[REQUESTS].write(&wait.reply, header.as_slice());
        self.complete(&mut queues, REQUESTS, wait.taken, placed.map(|()| ANSWER_BYTES));
    }
}

impl Session<'_> {
    /// Serves as one of the session's threads until the session ends.
    fn serve<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, is_first: bool) {
        let mut chain = Chain::default();
        let patience = (!is_first).then_some(LINGER);
        loop {
            let woken = match self.wakeups.wait_at_most(patience) {
                Ok(woken) => woken,
                Err(error) => {
                    tracing::error!(%error, "a thread of the share cannot wait for requests");
                    return;
                }
            };
            if woken.stop || (woken == Woken::default() && self.worker.queues().crew.leave()) {
                return;
            }
            for (index, number) in (0..QUEUES).zip(0..) {
                if woken.has(number) {
                    self.batch(scope, &mut chain, index);
                }
            }
            if woken.has(INTERRUPTS) {
                for wait in self.waiting.interrupt(&self.share.interrupts().take()) {
                    self.worker.answer_wait(&wait, Err(io::Error::from_raw_os_error(libc::EINTR)));
                }
            }
            if woken.has(WAITS) {
                self.look(false);
            }
        }
    }

    /// Serves some requests of one queue.
    fn batch<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, chain: &mut Chain, index: usize) {
        let mut queues = self.worker.queues();
        queues.crew.begin_work();
        for _ in 0..BATCH {
            let Some((taken, described)) = queues.rings[index].take_described(chain) else {
                if queues.rings[index].listen() {
                    continue;
                }
                queues.crew.end_work();
                return;
            };
            self.hand_over(scope, &mut queues, index);
            drop(queues);
            let outcome = described.map(|described| self.carry_out(&described, chain, taken, index));
            queues = self.worker.queues();
            match outcome {
                None => self.worker.complete(&mut queues, index, taken, None),
                Some(Outcome::Answered(written)) => {
                    // The guest may run before this thread goes on, which looks for what is next in any case.
                    queues.rings[index].mute();
                    self.worker.complete(&mut queues, index, taken, written);
                }
                Some(Outcome::AnsweredOrWaits) => {}
            }
        }
        chain.clear();
        queues.crew.end_work();
        self.wake(index);
    }

    /// Has another thread see to what comes while this one carries out a request.
    fn hand_over<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, queues: &mut Queues, index: usize) {
        if queues.crew.is_short() {
            queues.crew.add();
            let thread = Builder::new().name(DEVICE.to_owned());
            let started = thread.spawn_scoped(scope, move || match separate_umask() {
                Ok(()) => self.serve(scope, false),
                Err(error) => self.lose_thread(&error.into()),
            });
            if let Err(error) = started {
                queues.crew.lose();
                tracing::warn!(%error, "the share goes on with fewer threads");
            }
        }
        if queues.rings[index].listen() {
            self.wake(index);
        }
    }

    /// A thread that could not begin is not tried for again.
    fn lose_thread(&self, error: &io::Error) {
        tracing::warn!(%error, "the share goes on with fewer threads");
        self.worker.queues().crew.lose();
    }

    /// Wakes one thread for a queue, as the driver does.
    fn wake(&self, index: usize) {
        // Refused only when the counter is full.
        let _ = self.worker.events[index].write(1);
    }

    /// Carries out a request that was taken.
    fn carry_out(&self, described: &Described, chain: &mut Chain, taken: Taken, index: usize) -> Outcome {
        // Only the queue of requests has a ring that waits are answered to.
        let lock = lock_request(described).filter(|_| index == REQUESTS);
        let outcome = match lock {
            None => Outcome::Answered(answer(self.server, described)),
            Some((unique, request)) => {
                chain.writable.truncate(ANSWER_BYTES);
                let reply = chain.writable.iter().collect();
                self.lock(Wait { taken, reply, unique, request });
                Outcome::AnsweredOrWaits
            }
        };
        if self.share.lock_was_freed() {
            self.look(true);
        }
        outcome
    }

    /// Takes a lock, or has the request wait for it.
    fn lock(&self, wait: Wait) {
        let room = self.waiting.has_room();
        match self.share.lock(&wait.request, room) {
            Err(error) if is_held(&error) && room => self.waiting.push(wait),
            Err(error) if is_held(&error) => {
                self.worker.answer_wait(&wait, Err(io::Error::from_raw_os_error(libc::ENOLCK)));
            }
            other => self.worker.answer_wait(&wait, other),
        }
    }

    /// Tries again for what waits, if it is time or something was given up here.
    fn look(&self, freed: bool) {
        self.waiting.look(Instant::now(), freed, |wait| match self.share.lock(&wait.request, true) {
            Err(error) if is_held(&error) => false,
            other => {
                self.worker.answer_wait(wait, other);
                true
            }
        });
    }
}

/// The outcome of a request that was taken.
enum Outcome {
    /// Bytes written to guest memory; `None` where the request made no sense, or no answer could be placed.
    Answered(Option<u32>),
    /// A request for a lock, whose chain is given back already or is with those that wait.
    AnsweredOrWaits,
}
