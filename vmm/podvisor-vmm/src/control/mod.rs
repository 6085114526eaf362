//! The control loop: one thread, one client at a time, one request after the other.
//!
//! ```text
//!   no client ──connect──> client ──connect of another──> the other client
//!       ▲                    │
//!       └──closed, error─────┘         Shutdown, or the guest's end ──> report, end of the process
//! ```
//!
//! A client says its version first (`hello`), and earlier requests are refused. The client is the daemon.
//! Its requests are trusted, but it may vanish at any time. A VM then runs on and waits for the next
//! client. A process without a VM ends, because nobody may know of it. A client is dropped if it does not
//! read its answers, and connects again. Streams are closed if it does not take them. The loop never waits
//! for a client. While there is a VM, neither a client nor a lack of descriptors ends it. There is one file
//! per request, and `streams` carries connections opened by the guest.

mod answer;
mod boot;
mod console;
mod descriptors;
mod full_disks;
mod hello;
mod lock_waits;
mod plug;
mod resize;
mod restore;
mod save;
mod share_groups;
mod share_lost;
mod shutdown;
mod slots;
mod stats;
mod streams;
mod unplug;
mod vcpus;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use proto_vmm::{Event, Message, Packet, Refusal, Request, StopReason, StopReport};
use rustix::net::SocketFlags;
use vmm_vm::{BlankVm, BlankVmError, Console, FullDisks, ShareLink, Userfault, Vm};

use crate::error_chain::chain;
use crate::share::ShareProcess;
use answer::refusal;
use descriptors::Descriptors;
use streams::GuestStreams;

/// Longest wait for a client in a process without a VM, in milliseconds.
const CLIENT_PATIENCE_MS: u16 = 10_000;

/// Pause after the process or the host had no descriptor left, until a connection is accepted again, in
/// milliseconds. A daemon waits longer. A loop without a pause would take a processor.
const ACCEPT_PAUSE_MS: u16 = 200;

/// The loop cannot go on.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub(crate) enum ControlError {
    #[error("cannot wait for events")]
    Epoll(#[source] nix::Error),
    #[error("cannot make an event")]
    Event(#[source] nix::Error),
    #[error("cannot make the event of full disks")]
    FullDisks(#[source] std::io::Error),
    #[error("standard input is not a listening control socket")]
    Listener(#[source] rustix::io::Errno),
}

/// The descriptor behind a wake-up of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Source {
    Listener,
    Client,
    Streams,
    Resized,
    FullDisks,
    ShareLost,
    ShareEnded,
    Ended,
}

impl Source {
    const ALL: [Source; 8] = [
        Source::Listener,
        Source::Client,
        Source::Streams,
        Source::Resized,
        Source::FullDisks,
        Source::ShareLost,
        Source::ShareEnded,
        Source::Ended,
    ];

    fn from_token(token: u64) -> Option<Source> {
        Source::ALL.into_iter().find(|source| *source as u64 == token)
    }
}

/// The loop's next step.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Wait,
    /// End the VM, for this reason if no vCPU gave one.
    Stop(StopReason),
}

/// A connection to the daemon.
struct Client {
    socket: OwnedFd,
    /// The client's version of the protocol, once it has said one known to the VMM.
    version: Option<u32>,
}

/// A booted VM.
struct Booted {
    vm: Vm,
    boot_requested_ns: u64,
}

/// State of the control thread.
pub(crate) struct Control {
    epoll: Epoll,
    listener: OwnedFd,
    /// For the one VM, or the reason for having none.
    blank: Result<BlankVm, BlankVmError>,
    /// For the copies of a restore. It is closed before any guest runs.
    userfault: Option<Userfault>,
    share: Option<ShareLink>,
    console: Console,
    client: Option<Client>,
    streams: GuestStreams,
    booted: Option<Booted>,
    /// Connections wait until the pause is over.
    accept_paused: bool,
    /// The last client could not be accepted, and the log says so.
    accept_failed: bool,
    /// The guest has the memory last offered, and no client knows yet.
    resized_unsent: bool,
    /// Disks waiting for room on the node.
    full_disks: FullDisks,
    /// Their number has changed since the client last got it.
    full_disks_unsent: bool,
}

impl Control {
    pub(crate) fn new(
        listener: OwnedFd,
        blank: Result<BlankVm, BlankVmError>,
        userfault: Option<Userfault>,
        share: Option<&ShareProcess>,
        console: Console,
    ) -> Result<Control, ControlError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(ControlError::Epoll)?;
        rustix::io::ioctl_fionbio(&listener, true).map_err(ControlError::Listener)?;
        let streams = GuestStreams::new().map_err(ControlError::Event)?;
        let full_disks = FullDisks::new().map_err(ControlError::FullDisks)?;
        let control = Control {
            epoll,
            listener,
            blank,
            userfault,
            share: share.map(|share| share.link().clone()),
            console,
            client: None,
            streams,
            booted: None,
            accept_paused: false,
            accept_failed: false,
            resized_unsent: false,
            full_disks,
            full_disks_unsent: false,
        };
        control.watch(control.listener.as_fd(), Source::Listener)?;
        control.watch(control.streams.ready(), Source::Streams)?;
        control.watch(control.full_disks.changed().as_fd(), Source::FullDisks)?;
        if let Some(share) = share {
            control.watch(share.link().lost(), Source::ShareLost)?;
            control.watch(share.ended(), Source::ShareEnded)?;
        }
        Ok(control)
    }

    /// Serves until the VM has ended.
    pub(crate) fn run(mut self) -> Result<StopReport, ControlError> {
        let mut events = [EpollEvent::empty(); Source::ALL.len()];
        loop {
            let abandoned = self.booted.is_none() && self.client.is_none();
            let patience = match (self.accept_paused, abandoned) {
                (true, _) => EpollTimeout::from(ACCEPT_PAUSE_MS),
                (false, true) => EpollTimeout::from(CLIENT_PATIENCE_MS),
                (false, false) => EpollTimeout::NONE,
            };
            let count = match self.epoll.wait(&mut events, patience) {
                Ok(0) if self.accept_paused => {
                    // If this fails too, it is tried again after the next pause.
                    self.accept_paused = self.watch(self.listener.as_fd(), Source::Listener).is_err();
                    continue;
                }
                Ok(0) if abandoned => return Ok(self.finish(nobody())),
                Ok(count) => count,
                Err(nix::Error::EINTR) => continue,
                Err(error) => return Err(ControlError::Epoll(error)),
            };
            for event in &events[..count] {
                let Some(source) = Source::from_token(event.data()) else { continue };
                if let Next::Stop(reason) = self.handle(source)? {
                    return Ok(self.finish(reason));
                }
            }
        }
    }

    fn handle(&mut self, source: Source) -> Result<Next, ControlError> {
        match source {
            Source::Listener => self.accept()?,
            Source::Client => return Ok(self.receive()),
            Source::Streams => self.forward_streams(),
            Source::Resized => self.resized(),
            Source::FullDisks => self.full_disks_changed(),
            Source::ShareLost | Source::ShareEnded => return Ok(Next::Stop(self.share_lost())),
            Source::Ended => {
                let message = "a vCPU ended without a reason".to_owned();
                return Ok(Next::Stop(StopReason::Vmm { message }));
            }
        }
        Ok(Next::Wait)
    }

    /// Accepts a client in place of the old one. A process with a VM survives all errors here.
    fn accept(&mut self) -> Result<(), ControlError> {
        use rustix::io::Errno;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.listener, flags) {
            Ok(socket) => {
                self.accept_failed = false;
                // If it cannot be watched, it is hung up on and connects again.
                if self.watch(socket.as_fd(), Source::Client).is_ok() {
                    self.drop_client();
                    self.client = Some(Client { socket, version: None });
                }
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(()),
            Err(error) if self.booted.is_none() => Err(ControlError::Listener(error)),
            Err(error) => {
                if !std::mem::replace(&mut self.accept_failed, true) {
                    tracing::warn!(%error, "no client can be accepted for now");
                }
                // The connection stays in the queue and would wake the loop all the time.
                self.accept_paused = self.epoll.delete(&self.listener).is_ok();
                Ok(())
            }
        }
    }

    fn drop_client(&mut self) {
        self.streams.close();
        if let Some(client) = self.client.take() {
            // It was added, and nothing else removes it.
            let _ = self.epoll.delete(&client.socket);
        }
    }

    /// Handles one packet of the client.
    fn receive(&mut self) -> Next {
        let Some(client) = &self.client else { return Next::Wait };
        match proto_vmm::recv(&client.socket) {
            Ok(Some(Packet { message: Message::Request { id, request }, fds })) => {
                self.serve(id, request, Descriptors::new(fds))
            }
            Ok(Some(_)) => {
                tracing::warn!("the client sent no request but something else, and is dropped");
                self.drop_client();
                Next::Wait
            }
            Ok(None) => {
                self.drop_client();
                if self.booted.is_some() { Next::Wait } else { Next::Stop(nobody()) }
            }
            Err(error) if error.would_block() => Next::Wait,
            Err(error) => {
                tracing::warn!(error = chain(&error), "the client is dropped");
                self.drop_client();
                Next::Wait
            }
        }
    }

    fn serve(&mut self, id: u64, request: Request, mut descriptors: Descriptors) -> Next {
        let checked = match request {
            Request::Hello { .. } => Ok(()),
            _ => self.check_greeted(),
        };
        if let Err(refused) = checked {
            self.send(&Message::Response { id, result: Err(refused) }, &[]);
            return Next::Wait;
        }
        let (result, next) = match request {
            Request::Hello { version } => (self.hello(version), Next::Wait),
            Request::Boot(config) => (self.boot(*config, &mut descriptors), Next::Wait),
            Request::Restore(config) => (self.restore(*config, &mut descriptors), Next::Wait),
            Request::Save { memory, state } => (self.save(memory, state, &mut descriptors), Next::Wait),
            Request::Plug { slot, device } => (self.plug(slot, device, &mut descriptors), Next::Wait),
            Request::Unplug { slot } => (self.unplug(slot), Next::Wait),
            Request::Resize { memory_bytes } => (self.resize(memory_bytes), Next::Wait),
            Request::MakeVcpus { count } => (self.make_vcpus(count), Next::Wait),
            Request::InterruptLockWaits { pids } => (self.interrupt_lock_waits(&pids), Next::Wait),
            Request::ShareGroups { groups } => (self.share_groups(&groups), Next::Wait),
            Request::Slots => (self.slots(), Next::Wait),
            Request::Stats => (self.stats(), Next::Wait),
            Request::Console => (self.console(), Next::Wait),
            Request::Shutdown => (self.shutdown(), Next::Stop(StopReason::Requested)),
        };
        self.send(&Message::Response { id, result }, &[]);
        // The client reads again, or is a new one.
        self.report_resized();
        self.report_full_disks();
        next
    }

    /// Sends an answer to the client, if there is one. A client unable to take it is dropped.
    fn send(&mut self, message: &Message, fds: &[BorrowedFd<'_>]) {
        let Some(client) = &self.client else { return };
        if let Err(error) = proto_vmm::send(&client.socket, message, fds) {
            tracing::warn!(error = chain(&error), "the client is dropped");
            self.drop_client();
        }
    }

    /// Sends an event to the client, if there is one and it can take it now. Returns true if it was sent.
    fn send_event(&mut self, event: Event) -> bool {
        let Some(client) = self.client.as_ref().filter(|client| client.version.is_some()) else {
            return false;
        };
        match proto_vmm::send(&client.socket, &Message::Event(event), &[]) {
            Ok(()) => true,
            // A client may be slow to read.
            Err(error) if error.would_block() => false,
            Err(error) => {
                tracing::warn!(error = chain(&error), "the client is dropped");
                self.drop_client();
                false
            }
        }
    }

    /// Announces the guest's new streams to the client. A stream is reset in time if the client does not
    /// accept it.
    fn forward_streams(&mut self) {
        while let Some((port, number)) = self.streams.next() {
            let _ = self.send_event(Event::GuestStream { port, number: Some(number) });
        }
    }

    fn finish(mut self, reason: StopReason) -> StopReport {
        // Streams opened before the guest's end are sent before the end is reported.
        self.forward_streams();
        let mut booted = self.booted.take();
        let report = match &mut booted {
            Some(booted) => booted.vm.stop(reason),
            None => StopReport { reason, registers: None, console: String::new(), exits: Default::default() },
        };
        let _ = self.send_event(Event::Stopped(Box::new(report.clone())));
        // A thread of a device may wait for a file server that does not answer. The process ends without it.
        std::mem::forget(booted);
        report
    }

    fn watch(&self, fd: BorrowedFd<'_>, source: Source) -> Result<(), ControlError> {
        self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, source as u64)).map_err(ControlError::Epoll)
    }

    fn vm(&mut self) -> Result<&mut Vm, Refusal> {
        match &mut self.booted {
            Some(booted) => Ok(&mut booted.vm),
            None => Err(refusal("there is no VM yet")),
        }
    }
}

/// The reason if a process ends without a VM and without a request.
fn nobody() -> StopReason {
    StopReason::Vmm { message: "nobody asked for a VM".to_owned() }
}
