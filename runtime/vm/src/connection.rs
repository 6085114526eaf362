//! The control connection: requests out, responses and events in. Each packet is sent whole, so any task may
//! send. One task receives. `link` replaces a lost connection.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proto_vmm::{
    Event, Message, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Packet, Refusal, Request, Response, StopReport,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use crate::VmError;
use crate::allowance::Allowance;
use crate::events::Events;
use crate::text;

/// Timeout of an answer to any request but a boot.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

/// Timeout of the answer to a boot. A boot copies a kernel: with twenty pods started at once on one busy
/// processor, 20 s were not always enough.
pub(crate) const BOOT_DEADLINE: Duration = Duration::from_secs(60);

/// Most streams with descriptors on one connection. VMMs before version 7 send them; each is closed in a
/// thread.
const DESCRIPTORS_MAX: usize = 64;

type Answer = Result<Response, Refusal>;

/// Pending requests; `None` once the connection is lost.
type Pending = Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>;

fn deadline(request: &Request) -> Duration {
    match request {
        Request::Boot(_) | Request::Restore(_) | Request::Save { .. } => BOOT_DEADLINE,
        _ => ANSWER_DEADLINE,
    }
}

/// A connection; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: AsyncFd<OwnedFd>,
    next_id: AtomicU64,
    pending: Pending,
}

/// Dials the control socket at `path`.
pub(crate) fn dial(path: &Path) -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

impl Connection {
    /// Takes a connected socket. [`receive`](Self::receive) must run for answers to come.
    pub(crate) fn new(socket: OwnedFd) -> std::io::Result<Connection> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let socket = crate::reactor::watch(socket)?;
        let pending = Mutex::new(Some(HashMap::new()));
        Ok(Connection(Arc::new(Shared { socket, next_id: AtomicU64::new(1), pending })))
    }

    /// Sends our version, checks the VMM's, and returns the VMM's version and release. No other request may
    /// come before.
    pub(crate) async fn hello(&self, deadline: Duration) -> Result<(u32, String), VmError> {
        let request = Request::Hello { version: PROTOCOL_VERSION };
        match self.ask_within(deadline, "hello", request, &[]).await? {
            Response::Hello { version, release } if version >= PROTOCOL_VERSION_MIN => {
                Ok((version, text::printable(&release, text::RELEASE_CHARS_MAX)))
            }
            Response::Hello { version, .. } => Err(VmError::Version { version }),
            _ => Err(VmError::Confused { request: "hello" }),
        }
    }

    /// Returns true if the connection is lost. Then nothing more arrives, and no request can be sent.
    pub(crate) fn is_lost(&self) -> bool {
        self.pending().is_none()
    }

    /// Sends a request with its descriptors and waits for the answer. `name` is for errors.
    pub(crate) async fn ask(
        &self,
        name: &'static str,
        request: Request,
        fds: &[OwnedFd],
    ) -> Result<Response, VmError> {
        self.ask_within(deadline(&request), name, request, fds).await
    }

    async fn ask_within(
        &self,
        deadline: Duration,
        name: &'static str,
        request: Request,
        fds: &[OwnedFd],
    ) -> Result<Response, VmError> {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        match self.pending().as_mut() {
            Some(pending) => pending.insert(id, sender),
            None => return Err(VmError::Lost { request: name }),
        };
        let _waiting = Waiting { connection: self, id };
        let work = async {
            self.send(name, &Message::Request { id, request }, fds).await?;
            match answer.await {
                Ok(Ok(response)) => Ok(response),
                Ok(Err(Refusal { message })) => {
                    let message = text::printable(&message, text::LINE_CHARS_MAX);
                    Err(VmError::Refused { request: name, message })
                }
                Err(_) => Err(VmError::Lost { request: name }),
            }
        };
        match tokio::time::timeout(deadline, work).await {
            Ok(result) => result,
            Err(_) => Err(VmError::Deadline { request: name }),
        }
    }

    async fn send(&self, request: &'static str, message: &Message, fds: &[OwnedFd]) -> Result<(), VmError> {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let io = |source| VmError::Send { request, source };
        loop {
            let mut guard = self.0.socket.ready(Interest::WRITABLE).await.map_err(|error| {
                let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
                io(errno.into())
            })?;
            match proto_vmm::send(self.0.socket.get_ref(), message, &fds) {
                Err(error) if error.would_block() => guard.clear_ready(),
                other => return other.map_err(io),
            }
        }
    }

    /// Receives until the VMM closes the connection. Returns the VM's stop report, if it came.
    pub(crate) async fn receive(&self, events: &Events) -> Option<Box<StopReport>> {
        let (mut report, mut descriptors) = (None, 0);
        while let Some((Packet { message, fds }, bytes)) = self.next(&events.allowance).await {
            if !fds.is_empty() {
                descriptors += 1;
                dispose(fds);
                let is_old = matches!(message, Message::Event(Event::GuestStream { number: None, .. }));
                if !is_old || descriptors > DESCRIPTORS_MAX {
                    tracing::warn!(
                        "a VMM sent descriptors without a request; its control connection is given up"
                    );
                    break;
                }
            }
            match message {
                Message::Response { id, result } => {
                    let waiting = self.pending().as_mut().and_then(|pending| pending.remove(&id));
                    if let Some(waiting) = waiting {
                        events.allowance.give_back(bytes);
                        // The caller may have given up.
                        let _ = waiting.send(result);
                    }
                }
                Message::Event(Event::GuestStream { port, number: Some(number) }) => {
                    events.streams.put(port, number);
                }
                Message::Event(Event::GuestStream { number: None, .. }) if descriptors == 1 => {
                    tracing::warn!(
                        "a VMM of an earlier release connects its guest to no socket of the node; restart its pod"
                    );
                }
                Message::Event(Event::GuestStream { number: None, .. }) => {}
                Message::Event(Event::Resized) => drop(events.resized.send_replace(true)),
                Message::Event(Event::FullDisks { count }) => drop(events.full_disks.send_replace(count)),
                Message::Event(Event::Stopped(stopped)) => report = Some(Box::new(text::bounded(*stopped))),
                Message::Request { .. } => {
                    // One line for each connection, not for each request.
                    tracing::warn!("a VMM sent a request; its control connection is given up");
                    break;
                }
            }
            // The socket may never be empty, and other tasks wait.
            tokio::task::coop::consume_budget().await;
        }
        // Pending callers learn here of the lost connection.
        self.pending().take();
        report
    }

    /// Returns the next packet and the bytes of its message, or `None` at the end or on an error. An error
    /// ends the connection too, and so does a packet beyond the allowance. It is not decoded.
    async fn next(&self, allowance: &Allowance) -> Option<(Packet, usize)> {
        loop {
            let mut guard = self.0.socket.ready(Interest::READABLE).await.ok()?;
            let received = proto_vmm::recv_raw(self.0.socket.get_ref()).and_then(|raw| {
                let Some(raw) = raw else { return Ok(None) };
                let bytes = raw.message_bytes();
                if allowance.take(bytes) {
                    return Ok(Some((raw.decode()?, bytes)));
                }
                tracing::warn!("a VMM sends without end; its control connection is given up");
                dispose(raw.into_fds());
                Ok(None)
            });
            match received {
                Ok(packet) => return packet,
                Err(error) if error.would_block() => guard.clear_ready(),
                Err(mut error) => {
                    tracing::warn!(%error, "a control connection is given up");
                    dispose(error.take_fds());
                    return None;
                }
            }
        }
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Answer>>>> {
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes unrequested descriptors, in a separate thread: the last close of a file may wait for a server.
fn dispose(descriptors: Vec<OwnedFd>) {
    if descriptors.is_empty() {
        return;
    }
    // If no thread starts, they are closed here.
    let _ = std::thread::Builder::new().name("dispose".to_owned()).spawn(move || drop(descriptors));
}

/// A pending request; removed when its caller is done or gone.
struct Waiting<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(pending) = self.connection.pending().as_mut() {
            pending.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use proto_vmm::StopReason;

    use super::*;

    fn pair() -> (Connection, OwnedFd) {
        let (here, there) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        (Connection::new(here).unwrap(), there)
    }

    fn answer(peer: &OwnedFd, reply: impl FnOnce(u64, Request) -> Message) {
        let packet = proto_vmm::recv(peer).unwrap().unwrap();
        let Message::Request { id, request } = packet.message else { panic!("not a request") };
        proto_vmm::send(peer, &reply(id, request), &[]).unwrap();
    }

    #[tokio::test]
    async fn an_answer_finds_its_question_and_a_refusal_its_words() {
        let (connection, peer) = pair();
        let receiving = connection.clone();
        let task = tokio::spawn(async move { receiving.receive(&Events::new()).await });
        let thread = std::thread::spawn(move || {
            answer(&peer, |id, _| Message::Response { id, result: Ok(Response::Plugged) });
            answer(&peer, |id, _| Message::Response {
                id,
                result: Err(Refusal { message: "slot 7 is taken".into() }),
            });
        });
        let first = connection.ask("stats", Request::Stats, &[]).await;
        assert!(matches!(first, Ok(Response::Plugged)));
        let second = connection.ask("stats", Request::Stats, &[]).await.unwrap_err();
        assert_eq!(second.to_string(), "the VMM refused stats: slot 7 is taken");
        thread.join().unwrap();
        assert!(task.await.unwrap().is_none());
        let lost = connection.ask("stats", Request::Stats, &[]).await;
        assert!(matches!(lost, Err(VmError::Lost { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_vmm_that_never_answers_is_given_up() {
        let (connection, _peer) = pair();
        let started = tokio::time::Instant::now();
        let silent = connection.ask("stats", Request::Stats, &[]).await;
        assert!(matches!(silent, Err(VmError::Deadline { request: "stats" })));
        assert_eq!(started.elapsed().as_secs(), ANSWER_DEADLINE.as_secs());
    }

    #[tokio::test]
    async fn events_bring_streams_sizes_full_disks_and_the_stop_report() {
        let (connection, peer) = pair();
        let stream = Event::GuestStream { port: 1026, number: Some(16) };
        proto_vmm::send(&peer, &Message::Event(stream), &[]).unwrap();
        let report = StopReport {
            reason: StopReason::TripleFault,
            registers: None,
            console: "bye".into(),
            exits: Default::default(),
        };
        proto_vmm::send(&peer, &Message::Event(Event::Resized), &[]).unwrap();
        for count in [1, 2] {
            proto_vmm::send(&peer, &Message::Event(Event::FullDisks { count }), &[]).unwrap();
        }
        proto_vmm::send(&peer, &Message::Event(Event::Stopped(Box::new(report.clone()))), &[]).unwrap();
        drop(peer);
        let events = Events::new();
        assert_eq!(connection.receive(&events).await.as_deref(), Some(&report));
        assert!(*events.resized.borrow());
        assert_eq!(*events.full_disks.borrow(), 2);
        assert_eq!(events.streams.take(1026).await, 16);
    }

    #[tokio::test]
    async fn texts_of_a_vmm_are_short_and_printable() {
        let (connection, peer) = pair();
        let receiving = connection.clone();
        let task = tokio::spawn(async move { receiving.receive(&Events::new()).await });
        let long = "no\x1b[2J".repeat(5_000);
        let thread = std::thread::spawn(move || {
            let release = long.clone();
            answer(&peer, |id, _| Message::Response {
                id,
                result: Ok(Response::Hello { version: 7, release }),
            });
            let message = long.clone();
            answer(&peer, |id, _| Message::Response { id, result: Err(Refusal { message }) });
            let reason = StopReason::GuestPanic { message: long.clone() };
            let report = StopReport { reason, registers: None, console: long, exits: Default::default() };
            proto_vmm::send(&peer, &Message::Event(Event::Stopped(Box::new(report))), &[]).unwrap();
        });
        let (_, release) = connection.hello(ANSWER_DEADLINE).await.unwrap();
        assert!(release.starts_with("no[2J") && release.len() == text::RELEASE_CHARS_MAX, "{release:?}");
        let refused = connection.ask("stats", Request::Stats, &[]).await.unwrap_err().to_string();
        assert!(!refused.contains('\x1b') && refused.len() < text::LINE_CHARS_MAX + 100, "{}", refused.len());
        thread.join().unwrap();
        let report = task.await.unwrap().unwrap();
        let StopReason::GuestPanic { message } = report.reason else { panic!("{:?}", report.reason) };
        assert!(message.starts_with("no[2J") && message.len() == text::LINE_CHARS_MAX, "{}", message.len());
        assert!(report.console.ends_with("no[2J") && report.console.len() <= text::CONSOLE_BYTES_MAX);
    }

    #[tokio::test]
    async fn a_vmm_that_sends_requests_is_given_up() {
        let (connection, peer) = pair();
        proto_vmm::send(&peer, &Message::Request { id: 1, request: Request::Stats }, &[]).unwrap();
        proto_vmm::send(&peer, &Message::Event(Event::FullDisks { count: 7 }), &[]).unwrap();
        drop(peer);
        let events = Events::new();
        assert!(connection.receive(&events).await.is_none());
        assert_eq!(*events.full_disks.borrow(), 0);
    }

    #[tokio::test]
    async fn a_vmm_that_never_pauses_leaves_time_for_other_tasks() {
        let (connection, peer) = pair();
        rustix::io::ioctl_fionbio(&peer, true).unwrap();
        let mut sent = 0;
        while proto_vmm::send(&peer, &Message::Event(Event::FullDisks { count: sent + 1 }), &[]).is_ok() {
            sent += 1;
        }
        let (events, receiving) = (Events::new(), connection.clone());
        let (full_disks, destinations) = (Arc::clone(&events.full_disks), events.clone());
        let task = tokio::spawn(async move { receiving.receive(&destinations).await });
        while *full_disks.borrow() == 0 {
            tokio::task::yield_now().await;
        }
        let received = *full_disks.borrow();
        assert!(received < sent, "all {sent} events before another task ran");
        drop(peer);
        task.await.unwrap();
        assert_eq!(*full_disks.borrow(), sent);
    }

    #[tokio::test(start_paused = true)]
    async fn a_vmm_that_sends_without_end_is_given_up() {
        const MANY: u32 = 10_000;
        for empty in [0, 100_000] {
            let (connection, peer) = pair();
            let sending = std::thread::spawn(move || {
                let text = " ".repeat(empty);
                (0..MANY).all(|count| {
                    let event = format!(r#"{{"event":{{"full_disks":{text}{{"count":{count}}}}}}}"#);
                    rustix::net::send(&peer, event.as_bytes(), rustix::net::SendFlags::NOSIGNAL).is_ok()
                })
            });
            assert!(connection.receive(&Events::new()).await.is_none());
            drop(connection);
            assert!(!sending.join().unwrap(), "all {MANY} packets of {empty} bytes were received");
        }
    }

    #[tokio::test]
    async fn no_descriptor_of_a_vmm_is_taken() {
        let (file, _end) = std::io::pipe().unwrap();
        let old = Message::Event(Event::GuestStream { port: 1026, number: None });
        let new = Message::Event(Event::GuestStream { port: 1026, number: Some(1) });
        let resized = Message::Event(Event::Resized);
        // The earlier VMM's descriptor is closed, and others end the connection.
        for (message, count, goes_on) in
            [(&old, 1, true), (&old, DESCRIPTORS_MAX + 1, false), (&new, 1, false), (&resized, 1, false)]
        {
            let (connection, peer) = pair();
            for _ in 0..count {
                proto_vmm::send(&peer, message, &[file.as_fd()]).unwrap();
            }
            proto_vmm::send(&peer, &Message::Event(Event::FullDisks { count: 7 }), &[]).unwrap();
            drop(peer);
            let events = Events::new();
            assert!(connection.receive(&events).await.is_none());
            assert_eq!(*events.full_disks.borrow() == 7, goes_on, "{message:?}");
            let taken = tokio::time::timeout(Duration::ZERO, events.streams.take(1026)).await;
            assert!(taken.is_err(), "{message:?}");
        }
    }
}
