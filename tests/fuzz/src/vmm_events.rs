//! A VMM taken over by its guest, at the daemon's end of the control socket: packets in any order, cut,
//! too long, with descriptors; answers without a request; streams of the guest; hang-ups. Meanwhile the
//! daemon asks.
//!
//! Each question must end in the time of its deadline, each text must be short, and no descriptor may
//! stay open. The clock is virtual, and the VMM acts only while the daemon waits, so a script always does
//! the same.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proto_vmm::{
    Message, PACKET_BYTES_MAX, PROTOCOL_VERSION, Refusal, Request, Response, Slot, StopReason, StopReport,
    VmStats,
};
use runtime_vm::{Device, Vm, VmError};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::script::Script;
use crate::texts::{TEXT_CHARS_MAX, check_error, check_text};
use crate::vmm_messages::{PORTS, event, message, numbered, response};

/// Acts of one script.
const ACTS_MAX: usize = 64;

/// Questions at once.
const QUESTIONS_MAX: usize = 16;

/// Longest time of a question, in the virtual clock: a wait for a connection and one for the answer, of
/// 20 s each.
const QUESTION_MAX: Duration = Duration::from_secs(45);

/// Longest time until the VM's end is known.
const END_MAX: Duration = Duration::from_secs(60);

/// Most bytes of the console in a stop report.
const CONSOLE_BYTES_MAX: usize = 8 << 10;

/// Most streams kept for each port, and most ports.
const STREAMS_MAX: usize = 64;
const PORTS_MAX: usize = 4;

/// Longest time in which descriptors are closed. A thread closes those of a VMM.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

/// What a question came to.
type Outcome = Result<(), VmError>;

struct Vmm {
    script: Script,
    dir: PathBuf,
    listener: Option<OwnedFd>,
    client: Option<OwnedFd>,
    /// Requests without an answer.
    asked: VecDeque<(u64, Request)>,
    vsock: UnixListener,
    streams: Vec<UnixStream>,
}

/// Runs a script, and fails if something does not hold.
pub fn run(input: &[u8]) {
    let script = Script::new(input);
    // The first run opens what stays open.
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| in_runtime(&Script::new(&[])));
    let before = open_descriptors();
    in_runtime(&script);
    let begin = Instant::now();
    while open_descriptors() > before {
        assert!(begin.elapsed() < CLOSE_PATIENCE, "the daemon keeps descriptors");
        std::thread::yield_now();
    }
}

fn in_runtime(script: &Script) {
    // A process of its own has an end, and costs some time.
    let child = (script.below(4) == 1)
        .then(|| Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a process"));
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(converse(script, child));
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a process has this").count()
}

/// Field 22 of stat (proc(5)), after the name, field 2.
fn start_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a live process");
    let fields = stat.rsplit_once(") ").expect("a name in brackets").1;
    fields.split(' ').nth(22 - 3).and_then(|field| field.parse().ok()).expect("a number")
}

/// Lets the daemon work until it waits.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

async fn converse(script: &Script, mut child: Option<Child>) {
    let dir = std::env::temp_dir().join(format!("podvisor-fuzz-vmm-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).expect("a directory");
    let mut vmm = Vmm::new(script.clone(), dir.clone());
    let pid = child.as_ref().map_or(std::process::id(), Child::id);
    let attach_dir = dir.clone();
    let attaching = tokio::spawn(async move { Vm::attach(&attach_dir, pid, start_time(pid)).await });
    let (mut questions, mut vm) = (JoinSet::new(), None);
    let mut attaching = Some(attaching);
    for _ in 0..ACTS_MAX {
        if script.is_empty() {
            break;
        }
        settle().await;
        if attaching.as_ref().is_some_and(tokio::task::JoinHandle::is_finished) {
            let attached = attaching.take().expect("it is there").await.expect("no panic");
            vm = attached.map_err(|error| check_error(&error)).ok();
        }
        vmm.take_in();
        match (script.below(16), &vm) {
            (13.., Some(vm)) if questions.len() < QUESTIONS_MAX => ask(&mut questions, vm, script),
            (12, _) => sleep(Duration::from_secs([1, 10, 100][script.below(3)])).await,
            (act, _) => vmm.act(act),
        }
    }
    settle().await;
    vmm.end();
    if let Some(attaching) = attaching {
        let attached = timeout(QUESTION_MAX, attaching).await.expect("an end of the attaching");
        vm = attached.expect("no panic").map_err(|error| check_error(&error)).ok();
    }
    end(&mut questions, vm, child.as_mut(), &vmm).await;
    drop(vmm);
    let _ = std::fs::remove_dir_all(&dir);
}

/// The end: all questions are answered, and of the streams some are kept.
async fn end(questions: &mut JoinSet<Outcome>, vm: Option<Vm>, child: Option<&mut Child>, vmm: &Vmm) {
    let all = async {
        while let Some(outcome) = questions.join_next().await {
            if let Err(error) = outcome.expect("no panic") {
                check_error(&error);
            }
        }
    };
    timeout(QUESTION_MAX, all).await.expect("an end of each question");
    if let Some(vm) = &vm {
        assert!(vm.release().chars().count() <= TEXT_CHARS_MAX, "a long release");
        let mut ports = 0;
        for port in PORTS {
            let mut kept = 0;
            // The listener's queue is shorter than all streams.
            while timeout(Duration::from_millis(1), vm.guest_stream(port)).await.is_ok() {
                kept += 1;
                while vmm.vsock.accept().is_ok() {}
            }
            assert!(kept <= STREAMS_MAX, "{kept} streams are kept");
            ports += usize::from(kept > 0);
        }
        assert!(ports <= PORTS_MAX, "streams to {ports} ports are kept");
    }
    if let Some(child) = child {
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        if let Some(vm) = vm {
            let report = timeout(END_MAX, vm.stopped()).await.expect("the end of the VM is known");
            check_report(&report);
        }
    }
}

/// One question of the daemon.
fn ask(questions: &mut JoinSet<Outcome>, vm: &Vm, script: &Script) {
    let (vm, choice, number) = (vm.clone(), script.below(10), script.u8());
    questions.spawn(async move {
        match choice {
            0 => vm.stats().await.map(drop),
            1 => vm.console().await.map(|text| assert!(text.len() <= PACKET_BYTES_MAX)),
            2 => vm.filled_slots().await.map(drop),
            3 => vm.plug(Slot::RNG, Device::Rng).await,
            4 => vm.unplug(Slot::RNG).await,
            5 => vm.resize(u64::from(number) << 21).await,
            6 => vm.make_vcpus(number).await,
            7 => vm.interrupt_lock_waits(&[1, 2]).await,
            8 => vm.share_groups(&[3].into()).await,
            // It has no end of its own.
            _ => {
                let port = PORTS.start + u32::from(number % 8);
                let taking = timeout(Duration::from_secs(5), vm.guest_stream(port));
                taking.await.map_or(Ok(()), |taken| taken.map(drop))
            }
        }
    });
}

fn check_report(report: &StopReport) {
    match &report.reason {
        StopReason::GuestPanic { message } | StopReason::Vmm { message } => {
            check_text(message, TEXT_CHARS_MAX);
        }
        StopReason::InternalError { instruction, .. } => assert!(instruction.len() <= 16, "{instruction:?}"),
        _ => {}
    }
    let (console, is_unsafe) = (&report.console, |c: char| c.is_control() && !"\n\r\t".contains(c));
    assert!(console.len() <= CONSOLE_BYTES_MAX, "a console of {} bytes", console.len());
    assert!(!console.chars().any(is_unsafe), "{console:?}");
}

impl Vmm {
    fn new(script: Script, dir: PathBuf) -> Vmm {
        let listener = listen(&dir.join("control.sock"));
        let vsock = UnixListener::bind(dir.join("vsock.sock")).expect("a socket");
        vsock.set_nonblocking(true).expect("a socket has this");
        let (client, asked, streams) = (None, VecDeque::new(), Vec::new());
        Vmm { script, dir, listener: Some(listener), client, asked, vsock, streams }
    }

    /// Takes a new connection, which replaces the old one, and all requests.
    fn take_in(&mut self) {
        if let Some(client) = self.listener.as_ref().and_then(|listener| {
            rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC).ok()
        }) {
            self.client = Some(client);
            self.asked.clear();
        }
        let Some(client) = &self.client else { return };
        let mut bytes = vec![0; PACKET_BYTES_MAX];
        while let Ok((count, _)) = rustix::net::recv(client, &mut bytes[..], RecvFlags::empty()) {
            let Ok(Message::Request { id, request }) = serde_json::from_slice(&bytes[..count]) else { break };
            self.asked.push_back((id, request));
        }
    }

    fn act(&mut self, act: usize) {
        let script = self.script.clone();
        match act {
            0 | 1 => self.answer_fittingly(),
            2 => {
                let id = self.next_id();
                self.send(&Message::Response { id, result: Ok(response(&script)) });
            }
            3 => {
                let id = self.next_id();
                let message = script.text();
                self.send(&Message::Response { id, result: Err(Refusal { message }) });
            }
            4 | 5 => {
                let (event, times) = (event(&script), 1 + usize::from(script.u8()));
                for number in 0..times {
                    self.send(&Message::Event(numbered(event.clone(), number as u64)));
                }
            }
            6 => self.send(&Message::Request { id: 1, request: Request::Stats }),
            7 => self.packet(&script.bytes(), 0),
            // A message with other bytes in it, or cut.
            8 => {
                let mut bytes = serde_json::to_vec(&message(&script)).expect("a message");
                for _ in 0..script.below(4) {
                    let at = usize::from(script.u16()) % bytes.len();
                    bytes[at] = script.u8();
                }
                let length = usize::from(script.u16());
                self.packet(&bytes[..length.min(bytes.len())], 0);
            }
            9 => self.packet(&vec![b' '; PACKET_BYTES_MAX + script.below(4)], 0),
            10 => {
                let bytes = serde_json::to_vec(&message(&script)).expect("a message");
                let (count, times) = (1 + script.below(4), 1 + script.below(80));
                for _ in 0..times {
                    self.packet(&bytes, count);
                }
            }
            11 => self.client = None,
            _ => self.stream(),
        }
    }

    /// The id of a request, or one near it.
    fn next_id(&mut self) -> u64 {
        let near = u64::from(self.script.u8());
        let id = self.asked.pop_front().map_or(0, |(id, _)| id);
        if near < 128 { id } else { id.wrapping_add(near).wrapping_sub(192) }
    }

    /// Answers the oldest request as a VMM does.
    fn answer_fittingly(&mut self) {
        let Some((id, request)) = self.asked.pop_front() else { return };
        let response = match request {
            Request::Hello { .. } => {
                let version = match self.script.below(4) {
                    0 => u32::from(self.script.u8()),
                    _ => PROTOCOL_VERSION,
                };
                Response::Hello { version, release: self.script.text() }
            }
            Request::Plug { .. } => Response::Plugged,
            Request::Unplug { .. } => Response::Unplugged,
            Request::Resize { .. } => Response::Resizing,
            Request::MakeVcpus { .. } => Response::VcpusMade,
            Request::InterruptLockWaits { .. } => Response::LockWaitsInterrupted,
            Request::ShareGroups { .. } => Response::GroupsShared,
            Request::Slots => Response::Slots(Vec::new()),
            Request::Console => Response::Console { text: self.script.text() },
            _ => Response::Stats(VmStats::default()),
        };
        self.send(&Message::Response { id, result: Ok(response) });
    }

    fn send(&self, message: &Message) {
        let bytes = serde_json::to_vec(message).expect("a message");
        self.packet(&bytes, 0);
    }

    /// Sends a packet with this many descriptors. A full socket takes no more.
    fn packet(&self, bytes: &[u8], count: usize) {
        let Some(client) = &self.client else { return };
        let descriptors: Vec<_> = (0..count).map(descriptor).collect();
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(|fd| fd.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if count > 0 {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "four fit");
        }
        let slice = [std::io::IoSlice::new(bytes)];
        let _ = rustix::net::sendmsg(client, &slice, &mut ancillary, SendFlags::NOSIGNAL);
    }

    /// Something at the vsock socket: a stream is taken and written to, or all are closed.
    fn stream(&mut self) {
        if let Ok((mut stream, _)) = self.vsock.accept() {
            let _ = stream.set_nonblocking(true);
            let mut line = [0; 32];
            let count = stream.read(&mut line).unwrap_or_default();
            assert!(count == 0 || line.starts_with(b"ACCEPT "), "{line:?}");
            let _ = stream.write(&self.script.take(16));
            self.streams.push(stream);
        } else {
            self.streams.clear();
        }
    }

    /// Hangs up and takes no more connections.
    fn end(&mut self) {
        (self.listener, self.client) = (None, None);
        let _ = std::fs::remove_file(self.dir.join("control.sock"));
        self.streams.clear();
    }
}

fn listen(path: &Path) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let listener = listener.expect("a socket");
    let bound = SocketAddrUnix::new(path).and_then(|address| rustix::net::bind(&listener, &address));
    bound.and_then(|()| rustix::net::listen(&listener, 4)).expect("a listener");
    listener
}

/// Descriptors as a VMM has them: a stream, a file, a pipe.
fn descriptor(number: usize) -> OwnedFd {
    match number {
        0 => File::open("/dev/null").expect("it is everywhere").into(),
        1 => UnixStream::pair().expect("a pair").0.into(),
        _ => std::io::pipe().expect("a pipe").0.into(),
    }
}
