//! The device's back end. It takes FUSE requests off the queues and has them answered, several at once. A
//! request waiting for a lock keeps its chain while others are served.
//!
//! Each thread takes a request, leaves the next one to another thread, and carries its own out:
//!
//! ```text
//!   waits for an event ──a queue's──► takes a request ──► carries it out ──► answers
//!        ▲       ▲                      │ none left          (no lock held)    │
//!        │       └──────────────────────┘◄─────────────────────────────────────┘
//!        └── started when a request is taken and no thread waits, up to THREADS_MAX; ends after LINGER idle
//! ```
//!
//! Events are edge-triggered: each of them wakes one of the waiting threads. The driver need not notify
//! between an answer and the look for the next request. The answers come in any order, as a driver has to
//! expect.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Instant;

use fuse_backend_rs::abi::fuse_abi::{InHeader, LkIn, Opcode};
use virtio_queue::Queue;
use vm_memory::ByteValued as _;
use vmm_sys_util::eventfd::EventFd;

use super::link::Channel;
use super::locks::{Wait, is_held};
use super::request::{ANSWER_HEAD_BYTES, Desk, Done, answer_header, take_header};
use super::{DEVICE, ShareLink};
use crate::virtio::Interrupt;
use crate::virtio::chain::Chain;
use crate::virtio::crew::{Crew, LINGER};
use crate::virtio::ring::{Faults, Ring, Taken};
use crate::virtio::worker::{Stop, Wakeups, Woken};

/// Most threads for one share. If so many requests are stuck in file systems of the host, all others wait.
pub(super) const THREADS_MAX: usize = 16;

/// Requests taken by a thread before it looks for other work.
const BATCH: usize = 16;

/// Queues: urgent messages (FORGET, INTERRUPT), and requests.
pub(super) const QUEUES: usize = 2;
/// The queue of requests, including those waiting for locks.
const REQUESTS: usize = 1;
/// Sources of wake-ups beside the queues: waits to end, and waits to try again.
const INTERRUPTS: u8 = QUEUES as u8;
const WAITS: u8 = INTERRUPTS + 1;

/// Bytes of an answer without content.
const ANSWER_BYTES: u32 = ANSWER_HEAD_BYTES as u32;

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

/// Shared state of the threads of one session.
struct Session<'a> {
    worker: &'a FsWorker,
    link: &'a ShareLink,
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

    /// Serves until `stop` is readable, then gives the queues back. Waiting requests and open files stay
    /// with the link, because the driver has the requests' chains in the queue. A driver that begins
    /// `afresh` holds nothing.
    pub(super) fn run(self, link: &ShareLink, afresh: bool, stop: Stop) -> Vec<Queue> {
        let mut desk = Desk::new(Channel::open(link));
        if afresh {
            desk.channel.afresh();
            link.note_unmounted();
            link.waiting().clear();
        }
        match self.wakeups(link, stop) {
            Ok(wakeups) => {
                let session = Session { worker: &self, link, wakeups };
                std::thread::scope(|scope| session.serve(scope, desk, true));
            }
            Err(error) => tracing::error!(%error, "the share's device cannot wait for requests"),
        }
        let queues = self.queues.into_inner().unwrap_or_else(PoisonError::into_inner);
        queues.rings.into_iter().map(Ring::into_queue).collect()
    }

    fn wakeups(&self, link: &ShareLink, stop: Stop) -> io::Result<Wakeups> {
        let wakeups = Wakeups::new(stop)?;
        for (event, number) in self.events.iter().zip(0..) {
            wakeups.add(event, number, true)?;
            // After a pause there may be requests without a new notification.
            event.write(1)?;
        }
        // Processes named before are none of this session.
        link.interrupts().take();
        wakeups.add(link.interrupts(), INTERRUPTS, true)?;
        wakeups.add(link.waiting(), WAITS, true)?;
        Ok(wakeups)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a chain back to the driver. Without bytes written, the request made no sense or its answer had
    /// no place.
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
        let header = answer_header(wait.unique, ANSWER_HEAD_BYTES, result);
        let mut queues = self.queues();
        let placed = queues.rings[REQUESTS].write(&wait.reply, header.as_slice());
        self.complete(&mut queues, REQUESTS, wait.taken, placed.map(|()| ANSWER_BYTES));
    }
}

impl Session<'_> {
    /// Serves as one of the session's threads until the session ends.
    fn serve<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, mut desk: Desk, is_first: bool) {
        self.serve_until_idle(scope, &mut desk, is_first);
        desk.channel.settle();
    }

    fn serve_until_idle<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        desk: &mut Desk,
        is_first: bool,
    ) {
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
                    self.batch(scope, desk, &mut chain, index);
                }
            }
            if woken.has(INTERRUPTS) {
                for wait in self.link.waiting().interrupt(&self.link.interrupts().take()) {
                    self.worker.answer_wait(&wait, Err(io::Error::from_raw_os_error(libc::EINTR)));
                }
            }
            if woken.has(WAITS) {
                self.look(desk, false);
            }
        }
    }

    /// Serves some requests of one queue.
    fn batch<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        desk: &mut Desk,
        chain: &mut Chain,
        index: usize,
    ) {
        let mut queues = self.worker.queues();
        queues.crew.begin_work();
        for _ in 0..BATCH {
            let Some(taken) = queues.rings[index].take(chain) else {
                if queues.rings[index].listen() {
                    continue;
                }
                queues.crew.end_work();
                return;
            };
            self.hand_over(scope, &mut queues, index);
            drop(queues);
            let outcome = taken.fault.is_none().then(|| self.carry_out(desk, chain, taken, index));
            queues = self.worker.queues();
            match outcome {
                None => self.worker.complete(&mut queues, index, taken, None),
                Some(Outcome::Answered(written)) => {
                    // The guest may run before this thread goes on, and the thread looks for the next
                    // request in any case.
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

    /// Leaves the next requests to another thread while this one carries one out.
    fn hand_over<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, queues: &mut Queues, index: usize) {
        if queues.crew.is_short() {
            queues.crew.add();
            let thread = Builder::new().name(DEVICE.to_owned());
            let started = thread.spawn_scoped(scope, move || {
                self.serve(scope, Desk::new(Channel::open(self.link)), false);
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

    /// Wakes one thread for a queue, as the driver does.
    fn wake(&self, index: usize) {
        // Refused only when the counter is full.
        let _ = self.worker.events[index].write(1);
    }

    /// Carries out a taken request.
    fn carry_out(&self, desk: &mut Desk, chain: &mut Chain, taken: Taken, index: usize) -> Outcome {
        let Some(header) = take_header(chain) else { return Outcome::Answered(None) };
        // Waits are answered on the ring of requests only.
        if header.opcode == Opcode::Setlkw as u32 && index == REQUESTS {
            return self.lock(desk, &header, chain, taken);
        }
        let Done { written, freed } = desk.carry_out(&header, chain);
        if freed {
            self.look(desk, true);
        }
        Outcome::Answered(written)
    }

    /// Takes a lock, or has the request wait for it.
    fn lock(&self, desk: &mut Desk, header: &InHeader, chain: &mut Chain, taken: Taken) -> Outcome {
        let whole = desk.take_message(header, chain).and_then(|()| desk.body::<LkIn>());
        let Some(asked) = whole else { return Outcome::Answered(None) };
        let Some(message) = desk.message.first_chunk().copied() else { return Outcome::Answered(None) };
        chain.writable.truncate(ANSWER_BYTES);
        let (reply, pids) = (chain.writable.iter().collect(), [header.pid, asked.lk.pid]);
        let wait = Wait { taken, reply, unique: header.unique, pids, message };
        self.link.opened().note_lock();
        let room = self.link.waiting().has_room();
        let (result, freed) = desk.channel.lock(&message, room);
        match result {
            Err(error) if is_held(&error) && room => self.link.waiting().push(wait),
            Err(error) if is_held(&error) => {
                self.worker.answer_wait(&wait, Err(io::Error::from_raw_os_error(libc::ENOLCK)));
            }
            other => self.worker.answer_wait(&wait, other),
        }
        if freed {
            self.look(desk, true);
        }
        Outcome::AnsweredOrWaits
    }

    /// Tries waiting requests again, if it is time or a lock was released here.
    fn look(&self, desk: &mut Desk, freed: bool) {
        self.link.waiting().look(Instant::now(), freed, |wait| {
            match desk.channel.lock(&wait.message, true) {
                (Err(error), _) if is_held(&error) => false,
                (other, _) => {
                    self.worker.answer_wait(wait, other);
                    true
                }
            }
        });
    }
}

/// The outcome of a taken request.
enum Outcome {
    /// Bytes written to guest memory. `None` if the request made no sense, or no answer could be placed.
    Answered(Option<u32>),
    /// A request for a lock. Its chain is given back already, or waits with others.
    AnsweredOrWaits,
}
