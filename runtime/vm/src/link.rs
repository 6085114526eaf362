//! The link to a VMM: one connection at a time, and a new one if it is lost while the VMM lives.
//!
//! ```text
//!   connected ──lost──> dialling ──the VMM answers hello──> connected
//!       │                  │
//!       └──stop report─────┴──the VMM has ended──> over
//! ```
//!
//! A request in progress on a lost connection fails, because its outcome is unknown. A new request without a
//! connection waits for the next one.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use proto_vmm::{Request, Response, StopReport};
use runtime_fail_points::{Point, pass_async};
use runtime_spans::{span, step};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::VmError;
use crate::connection::{ANSWER_DEADLINE, Connection, dial};
use crate::events::Events;
use crate::process::Process;

/// Pause before the next dial of a VMM; doubled each time, up to [`REDIAL_MAX`].
const REDIAL_FIRST: Duration = Duration::from_millis(100);

/// Longest pause. A VMM that drops every connection costs one dial and one log line in this time.
const REDIAL_MAX: Duration = Duration::from_secs(5);

/// Minimum life of a good connection: after it, the backoff starts again from the first pause.
const STEADY: Duration = Duration::from_secs(60);

/// A connection after a successful hello, and the task receiving from it.
#[derive(Debug)]
pub(crate) struct Greeted {
    connection: Connection,
    receiving: JoinHandle<Option<Box<StopReport>>>,
    /// The VMM's version of the protocol.
    pub(crate) version: u32,
    /// The VMM's release, as reported by the VMM; empty if it reports none.
    pub(crate) release: String,
}

#[derive(Clone, Debug)]
enum State {
    Connected(Connection),
    Dialling,
    Over,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    path: PathBuf,
    events: Events,
    state: watch::Sender<State>,
}

/// Dials the control socket at `path` and sends our version. The VMM must answer before `deadline`.
///
/// # Errors
/// The VMM does not take the connection, does not answer, or is of an unsupported version.
pub(crate) async fn greet(path: &Path, events: &Events, deadline: Duration) -> Result<Greeted, VmError> {
    let dialled = pass_async(Point::VmmHello).await.and_then(|()| dial(path));
    let connection = dialled
        .and_then(Connection::new)
        .map_err(|source| VmError::Connect { path: path.to_owned(), source })?;
    let (receiver, events) = (connection.clone(), events.clone());
    // The VMM reports full disks to a new connection if there are any.
    events.full_disks.send_replace(0);
    let receiving = tokio::spawn(async move { receiver.receive(&events).await });
    match connection.hello(deadline).await {
        Ok((version, release)) => Ok(Greeted { connection, receiving, version, release }),
        Err(error) => {
            receiving.abort();
            Err(error)
        }
    }
}

impl Link {
    /// Keeps a link, starting with `first`, until the VMM's `process` has ended or the link is dropped. The
    /// task returns the VM's stop report, if it came.
    pub(crate) fn keep(
        path: PathBuf,
        events: Events,
        first: Greeted,
        process: Arc<Process>,
    ) -> (Arc<Link>, JoinHandle<Option<Box<StopReport>>>) {
        let state = watch::Sender::new(State::Connected(first.connection.clone()));
        let link = Arc::new(Link { path, events, state });
        let task = tokio::spawn(receive(Arc::downgrade(&link), first, process));
        (link, task)
    }

    /// Sends a request with its descriptors and waits for the answer. `name` is for errors and for the step
    /// in a trace.
    pub(crate) async fn ask(
        &self,
        name: &'static str,
        request: Request,
        fds: &[OwnedFd],
    ) -> Result<Response, VmError> {
        let span = span!("VMM", otel.name = format_args!("VMM {name}"), otel.kind = "client");
        step(span, self.answer(name, request, fds)).await
    }

    async fn answer(
        &self,
        name: &'static str,
        request: Request,
        fds: &[OwnedFd],
    ) -> Result<Response, VmError> {
        let usable = |state: &State| match state {
            State::Connected(connection) => !connection.is_lost(),
            State::Dialling => false,
            State::Over => true,
        };
        let mut state = self.state.subscribe();
        let state = match tokio::time::timeout(ANSWER_DEADLINE, state.wait_for(usable)).await {
            // This link owns the sender.
            Ok(state) => state.map_or(State::Over, |state| state.clone()),
            Err(_) => return Err(VmError::Deadline { request: name }),
        };
        match state {
            State::Connected(connection) => connection.ask(name, request, fds).await,
            State::Dialling | State::Over => Err(VmError::Lost { request: name }),
        }
    }
}

/// Receives from one connection after the other. A link without owners is not reconnected: the VM's present
/// owner has its own link.
async fn receive(link: Weak<Link>, first: Greeted, process: Arc<Process>) -> Option<Box<StopReport>> {
    let mut pause = REDIAL_FIRST;
    let mut receiving = first.receiving;
    drop(first.connection);
    loop {
        let since = Instant::now();
        let report = receiving.await.ok().flatten();
        if since.elapsed() >= STEADY {
            pause = REDIAL_FIRST;
        }
        if report.is_some() {
            link.upgrade()?.state.send_replace(State::Over);
            return report;
        }
        link.upgrade()?.state.send_replace(State::Dialling);
        receiving = loop {
            tokio::select! {
                biased;
                () = process.ended() => {
                    link.upgrade()?.state.send_replace(State::Over);
                    return None;
                }
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(REDIAL_MAX);
            let link = link.upgrade()?;
            match greet(&link.path, &link.events, ANSWER_DEADLINE).await {
                Ok(greeted) => {
                    tracing::warn!(
                        pid = process.pid(),
                        "the connection to a VMM was lost, and was made again"
                    );
                    link.state.send_replace(State::Connected(greeted.connection));
                    break greeted.receiving;
                }
                Err(error) => tracing::debug!(pid = process.pid(), %error, "a VMM is not reached again yet"),
            }
        };
    }
}

#[cfg(test)]
mod tests {

    use proto_vmm::{Event, Message, PROTOCOL_VERSION, Refusal};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

    use super::*;

    /// A VMM under a test's control: the test decides the course of each connection.
    struct FakeVmm {
        dir: tempfile::TempDir,
        listener: OwnedFd,
    }

    impl FakeVmm {
        fn new() -> FakeVmm {
            let dir = tempfile::tempdir().unwrap();
            let flags = SocketFlags::CLOEXEC;
            let listener =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
            let address = SocketAddrUnix::new(dir.path().join("control.sock")).unwrap();
            rustix::net::bind(&listener, &address).unwrap();
            rustix::net::listen(&listener, 4).unwrap();
            FakeVmm { dir, listener }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("control.sock")
        }

        /// Takes the next connection and answers its hello.
        fn greet(&self, version: u32) -> OwnedFd {
            let client = rustix::net::accept(&self.listener).unwrap();
            answer(&client, Ok(Response::Hello { version, release: String::new() }));
            client
        }
    }

    /// Answers the next request.
    fn answer(client: &OwnedFd, result: Result<Response, Refusal>) {
        let packet = proto_vmm::recv(client).unwrap().unwrap();
        let Message::Request { id, .. } = packet.message else { panic!("not a request") };
        proto_vmm::send(client, &Message::Response { id, result }, &[]).unwrap();
    }

    fn this_process() -> Arc<Process> {
        Arc::new(Process::open(std::process::id()).unwrap())
    }

    async fn link(path: PathBuf, process: Arc<Process>) -> (Arc<Link>, JoinHandle<Option<Box<StopReport>>>) {
        let first = greet(&path, &Events::new(), ANSWER_DEADLINE).await.unwrap();
        Link::keep(path, Events::new(), first, process)
    }

    #[tokio::test]
    async fn a_lost_connection_is_made_again_and_the_next_request_waits_for_it() {
        let vmm = FakeVmm::new();
        let path = vmm.path();
        let thread = std::thread::spawn(move || {
            for _ in 0..2 {
                let client = vmm.greet(PROTOCOL_VERSION);
                // Hangs up instead of answering.
                proto_vmm::recv(&client).unwrap().unwrap();
            }
            let client = vmm.greet(PROTOCOL_VERSION);
            answer(&client, Ok(Response::Plugged));
            client
        });
        let (link, _task) = link(path, this_process()).await;
        for _ in 0..2 {
            let lost = link.ask("stats", Request::Stats, &[]).await;
            assert!(matches!(lost, Err(VmError::Lost { .. })), "{lost:?}");
        }
        assert!(matches!(link.ask("stats", Request::Stats, &[]).await, Ok(Response::Plugged)));
        thread.join().unwrap();
    }

    #[tokio::test]
    async fn nonsense_ends_a_connection_and_not_the_link() {
        let vmm = FakeVmm::new();
        let path = vmm.path();
        let thread = std::thread::spawn(move || {
            let client = vmm.greet(PROTOCOL_VERSION);
            rustix::io::write(&client, b"nonsense").unwrap();
            let client = vmm.greet(PROTOCOL_VERSION);
            let event = Message::Event(Event::GuestStream { port: 1024, number: Some(16) });
            proto_vmm::send(&client, &event, &[]).unwrap();
            client
        });
        let first = greet(&path, &Events::new(), ANSWER_DEADLINE).await.unwrap();
        let events = Events::new();
        let (_link, _task) = Link::keep(path, events.clone(), first, this_process());
        events.streams.take(1024).await;
        thread.join().unwrap();
    }

    #[tokio::test]
    async fn a_vmm_that_has_ended_is_not_dialled_again() {
        let vmm = FakeVmm::new();
        let path = vmm.path();
        let thread = std::thread::spawn(move || vmm.greet(PROTOCOL_VERSION));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (link, task) = link(path, Arc::new(Process::open(child.id()).unwrap())).await;
        child.kill().unwrap();
        drop(thread.join().unwrap());
        assert!(task.await.unwrap().is_none());
        let over = link.ask("stats", Request::Stats, &[]).await;
        assert!(matches!(over, Err(VmError::Lost { .. })), "{over:?}");
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn a_link_that_nobody_holds_is_not_made_again() {
        let vmm = FakeVmm::new();
        let path = vmm.path();
        let thread = std::thread::spawn(move || vmm.greet(PROTOCOL_VERSION));
        let (link, task) = link(path, this_process()).await;
        drop(link);
        drop(thread.join().unwrap());
        assert!(task.await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_vmm_of_another_version_is_refused_with_both() {
        let vmm = FakeVmm::new();
        let path = vmm.path();
        let thread = std::thread::spawn(move || {
            vmm.greet(0);
            let newer = vmm.greet(PROTOCOL_VERSION + 1);
            let client = rustix::net::accept(&vmm.listener).unwrap();
            answer(&client, Err(Refusal { message: "the daemon speaks version 1".into() }));
            // A VMM without versions hangs up.
            drop(rustix::net::accept(&vmm.listener).unwrap());
            newer
        });
        let mut said = Vec::new();
        for _ in 0..4 {
            said.push(
                greet(&path, &Events::new(), ANSWER_DEADLINE).await.err().map(|error| error.to_string()),
            );
        }
        let expected = [
            Some("the VMM speaks version 0 of the protocol, and this daemon 1 to 7"),
            // The newer side decides.
            None,
            Some("the VMM refused hello: the daemon speaks version 1"),
        ];
        assert_eq!(said[..3].iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
        assert!(said[3].as_ref().unwrap().contains("hello"), "{said:?}");
        thread.join().unwrap();
    }
}
