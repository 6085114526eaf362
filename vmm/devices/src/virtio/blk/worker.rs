//! The disk's back end: takes requests off the queue and carries them out, several at once if they wait for
//! the node's disk.
//!
//! A thread carries requests out one after the other. The node starts the requests waiting for its disk, and
//! the thread sets them aside. Then another thread takes over the queue.
//!
//! ```text
//!   waits for the driver ──► takes a request ──► carries it out (in memory) ──► answers
//!        ▲       ▲             ▲  │  ▲  │ none left  │ has to wait                 │
//!        │       └─────────────┼──┘  │  │            └──► is set aside ──┐         │
//!        │                     │     └──┼────────────────────────────────┴─────────┘
//!        │                     │        ▼ some are set aside
//!        │                     │     hands the queue over, waits for each ──► answers
//!        │                     └───────────────────────────────────────────────┘
//!        └── started by a thread handing over while none is idle, up to THREADS_MAX; ends if idle for LINGER
//! ```
//!
//! If there is no room on the node, a write stays on the queue with all later requests, and is tried again.
//! With an I/O error instead, the guest would lose data its programs wrote long ago. The answers come in any
//! order, as the standard allows.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use virtio_queue::Queue;
use vmm_sys_util::eventfd::EventFd;

use super::carry_out::{Content, Failed, Wait};
use super::config::config;
use super::full_disks::{FullDisk, FullDisks};
use super::request::{Limits, Operation, Request, Status, parse};
use super::size::Size;
use super::unheard::Unheard;
use super::urgency::{Urgency, Wakings};
use crate::virtio::Interrupt;
use crate::virtio::chain::Chain;
use crate::virtio::crew::{Crew, LINGER};
use crate::virtio::iovec::Iovecs;
use crate::virtio::ring::{Faults, Ring, Taken};
use crate::virtio::worker::{Stop, Wakeups};

/// Most threads of one disk. Each may wait for [`BATCH`] requests at once.
const THREADS_MAX: usize = 4;

/// Requests taken by a thread before it checks for a stop.
const BATCH: usize = 16;

/// Time before a write without room is tried again: soon after there is room, and at almost no cost before.
const ROOM_RETRY: Duration = Duration::from_millis(250);

/// Number of the queue's event among the wake-ups.
const QUEUE: u8 = 0;

/// A disk at work.
#[derive(Debug)]
pub(super) struct BlkWorker {
    pub(super) queue: Mutex<BlkQueue>,
    pub(super) event: EventFd,
    pub(super) interrupt: Arc<dyn Interrupt>,
    pub(super) file: Arc<File>,
    pub(super) is_regular: bool,
    /// The driver cannot flush, so each write must be on the disk before its answer.
    pub(super) write_through: bool,
    pub(super) faults: Faults,
    /// The VM's disks waiting for room.
    pub(super) full_disks: FullDisks,
}

/// The part of a disk held by one thread at a time.
#[derive(Debug)]
pub(super) struct BlkQueue {
    pub(super) ring: Ring,
    pub(super) limits: Limits,
    /// The size of a block device.
    pub(super) size: Size,
    /// Set while a write waits for room.
    pub(super) full: Option<FullDisk>,
    pub(super) crew: Crew,
}

/// The private part of each thread.
#[derive(Debug)]
pub(super) struct BlkThread {
    /// Storage for the next request.
    chain: Chain,
    /// Requests waiting for the node's disk, at most [`BATCH`]. All of them are started, except for a flush;
    /// it is the last.
    waiting: Vec<Waiting>,
    /// Used storage, for as many more requests.
    chains: Vec<Chain>,
    iovecs: Iovecs,
    wakings: Wakings,
    /// Requests taken since the thread was woken.
    served: u32,
    /// The thread that exists as long as the device works.
    is_first: bool,
}

#[derive(Debug)]
struct Waiting {
    taken: Taken,
    request: Request,
    chain: Chain,
}

/// Outcome of a look at the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The driver will notify us of the next request.
    Nothing,
    /// There are more requests.
    Work,
    /// There is no room on the node for the next request.
    NoRoom,
}

/// Sets the urgency of the calling thread. On failure the thread stays as it is.
fn set_urgency(urgency: Urgency) {
    let set = match urgency {
        Urgency::Patient => vmm_sched_batch::set_sched_batch(),
        Urgency::Urgent => vmm_sched_batch::set_sched_other(),
    };
    if let Err(error) = set {
        tracing::warn!(%error, "a disk's thread keeps its scheduling policy");
    }
}

impl BlkQueue {
    pub(super) fn new(ring: Ring, limits: Limits, size: Size) -> BlkQueue {
        BlkQueue { ring, limits, size, full: None, crew: Crew::new(THREADS_MAX) }
    }
}

impl BlkThread {
    pub(super) fn new(is_first: bool) -> BlkThread {
        BlkThread {
            chain: Chain::default(),
            waiting: Vec::new(),
            chains: Vec::new(),
            iovecs: Iovecs::default(),
            wakings: Wakings::new(),
            served: 0,
            is_first,
        }
    }

    /// Keeps the request in `chain` for a later wait.
    fn set_aside(&mut self, taken: Taken, request: Request) {
        let chain = std::mem::replace(&mut self.chain, self.chains.pop().unwrap_or_default());
        self.waiting.push(Waiting { taken, request, chain });
    }
}

impl BlkWorker {
    /// Serves until `stop` is readable and no request waits for the node's disk. Then returns the queue.
    pub(super) fn run(self, stop: Stop) -> Vec<Queue> {
        match self.wakeups(stop) {
            Ok(wakeups) => std::thread::scope(|scope| self.serve(scope, &wakeups, BlkThread::new(true))),
            Err(error) => tracing::error!(%error, "a disk's thread cannot wait for requests"),
        }
        vec![self.queue.into_inner().unwrap_or_else(PoisonError::into_inner).ring.into_queue()]
    }

    fn wakeups(&self, stop: Stop) -> io::Result<Wakeups> {
        let wakeups = Wakeups::new(stop)?;
        // The event wakes a thread each time the driver writes it, and is never read.
        wakeups.add(&self.event, QUEUE, true)?;
        Ok(wakeups)
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, BlkQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves as one of the disk's threads.
    fn serve<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        wakeups: &'scope Wakeups,
        mut thread: BlkThread,
    ) {
        set_urgency(Urgency::Patient);
        // After a pause, or on a queue handed over, there may be requests without a new notification.
        let mut left = Left::Work;
        loop {
            let patience = match left {
                Left::Nothing => self.patience(&thread),
                Left::Work => Some(Duration::ZERO),
                Left::NoRoom => Some(ROOM_RETRY),
            };
            let woken = match wakeups.wait_at_most(patience) {
                Ok(woken) => woken,
                Err(error) => return tracing::error!(%error, "a disk's thread cannot wait for requests"),
            };
            if woken.stop {
                return;
            }
            if thread.is_first {
                self.look_at_size();
            }
            if woken.has(QUEUE) || left != Left::Nothing {
                left = self.batch(&mut thread, |queue| self.hand_over(scope, wakeups, queue));
            } else if !thread.is_first && self.queue().crew.leave() {
                return;
            }
            if left == Left::Nothing
                && thread.served > 0
                && let Some(urgency) = thread.wakings.add(std::mem::take(&mut thread.served))
            {
                set_urgency(urgency);
            }
        }
    }

    /// Returns the time until a thread must check the size (never for a file), or whether it is still needed.
    fn patience(&self, thread: &BlkThread) -> Option<Duration> {
        match thread.is_first {
            true => (!self.is_regular).then(|| self.queue().size.patience()),
            false => Some(LINGER),
        }
    }

    /// Reports a grown block device to the driver.
    pub(super) fn look_at_size(&self) {
        if self.is_regular {
            return;
        }
        let mut queue = self.queue();
        if let Some(sectors) = queue.size.look(&self.file) {
            queue.limits.sectors = sectors;
            if self.interrupt.config_changed(&config(sectors)).is_err() {
                self.faults.count();
            }
        }
    }

    /// Serves some requests and notifies the driver of all of them. Returns whether there are more. Before
    /// the thread waits for the node's disk, `hand_over` gives the queue to another thread.
    pub(super) fn batch(&self, thread: &mut BlkThread, mut hand_over: impl FnMut(&mut BlkQueue)) -> Left {
        let mut queue = self.queue();
        queue.crew.begin_work();
        queue.ring.mute();
        let mut room = BATCH;
        let left = loop {
            let left = self.take_some(&mut queue, thread, &mut room);
            queue.ring.signal(&*self.interrupt);
            if thread.waiting.is_empty() {
                break left;
            }
            hand_over(&mut queue);
            drop(queue);
            queue = self.wait_for_disk(thread);
        };
        queue.crew.end_work();
        if left == Left::Nothing && queue.ring.listen() { Left::Work } else { left }
    }

    /// Takes requests as long as there is `room`, and carries out those that need not wait for the node's
    /// disk.
    fn take_some(&self, queue: &mut BlkQueue, thread: &mut BlkThread, room: &mut usize) -> Left {
        let mut unheard = Unheard::default();
        while *room > 0 {
            let begun = Instant::now();
            let Some(taken) = queue.ring.take(&mut thread.chain) else { return Left::Nothing };
            *room -= 1;
            let request = parse(&mut thread.chain, taken.fault, queue.limits);
            let written = match &request {
                Some(request) => self.answer(request, &mut thread.chain, &mut thread.iovecs, Wait::Never),
                None => {
                    // A faulty chain was already counted when it was taken.
                    if taken.fault.is_none() {
                        self.faults.count();
                    }
                    Ok(0)
                }
            };
            match (written, request) {
                (Ok(written), _) => {
                    queue.full = None;
                    queue.ring.complete(taken, written);
                }
                (Err(Failed::WouldWait), Some(request)) => {
                    let is_begun = request.operation != Ok(Operation::Flush);
                    thread.set_aside(taken, request);
                    if !is_begun {
                        return Left::Work;
                    }
                }
                (Err(_), _) => {
                    queue.full.get_or_insert_with(|| self.full_disks.enter());
                    // It is taken again at the next look, also by a thread taking over the queue.
                    queue.ring.put_back(1);
                    return Left::NoRoom;
                }
            }
            thread.served = thread.served.saturating_add(1);
            // A driver waiting for this request should not have to wait for the next one too, unless the next
            // one takes almost no time.
            if unheard.add(begun.elapsed()) {
                queue.ring.signal(&*self.interrupt);
            }
        }
        Left::Work
    }

    /// Carries out the requests waiting for the node's disk, and takes the queue again.
    fn wait_for_disk(&self, thread: &mut BlkThread) -> MutexGuard<'_, BlkQueue> {
        let mut unheard = Unheard::default();
        for Waiting { taken, request, mut chain } in thread.waiting.drain(..) {
            let begun = Instant::now();
            // Neither a read nor a flush needs room.
            let written = self.answer(&request, &mut chain, &mut thread.iovecs, Wait::ForDisk).unwrap_or(0);
            chain.clear();
            thread.chains.push(chain);
            let mut queue = self.queue();
            queue.ring.complete(taken, written);
            if unheard.add(begun.elapsed()) {
                queue.ring.signal(&*self.interrupt);
            }
        }
        let mut queue = self.queue();
        // The guest may run before this thread continues. The thread looks for the next request in any case.
        queue.ring.mute();
        queue.ring.signal(&*self.interrupt);
        queue
    }

    /// Gives the queue to another thread while this one waits for the node's disk.
    fn hand_over<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        wakeups: &'scope Wakeups,
        queue: &mut BlkQueue,
    ) {
        if queue.crew.is_short() {
            let named = Builder::new().name(std::thread::current().name().unwrap_or_default().to_owned());
            let started = named.spawn_scoped(scope, || self.serve(scope, wakeups, BlkThread::new(false)));
            // The new thread waits for the queue, because this one holds it.
            queue.crew.add();
            match started {
                // The new thread looks at the queue first of all.
                Ok(_) => return,
                Err(error) => {
                    queue.crew.lose();
                    tracing::warn!(%error, "a disk goes on with fewer threads");
                }
            }
        }
        if queue.ring.listen() {
            // Fails only if the counter is full.
            let _ = self.event.write(1);
        }
    }

    /// Carries a request out and writes its status. Returns the bytes written to guest memory, or the reason
    /// for no answer.
    fn answer(
        &self,
        request: &Request,
        chain: &mut Chain,
        iovecs: &mut Iovecs,
        wait: Wait,
    ) -> Result<u32, Failed> {
        let content =
            Content { file: &self.file, is_regular: self.is_regular, write_through: self.write_through };
        let operation = request.operation.as_ref().map_err(|status| Failed::from(*status));
        let (status, written) =
            match operation.and_then(|operation| content.carry_out(operation, chain, iovecs, wait)) {
                Ok(written) => (Status::Ok, written),
                Err(Failed::Status(status)) => (status, 0),
                Err(failed) => return Err(failed),
            };
        if chain.writable.write_byte(request.status, status as u8).is_none() {
            self.faults.count();
            return Ok(0);
        }
        Ok(written.saturating_add(1))
    }
}
