//! The share's end: a thread for each channel. It carries out the channel's requests.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fuse_backend_rs::api::server::Server;
use rustix::net::RecvFlags;

use super::packet::{ANSWER_BYTES_MAX, Call, GROUPS_MAX, HEAD_BYTES, Outcome, REQUEST_BYTES_MAX, Reply};
use super::sheet::Sheet;
use super::socket::{Received, connected, receive, send};
use crate::virtio::fs::Share;
use crate::virtio::fs::credentials::set_groups;
use crate::virtio::fs::locks::LockRequest;
use crate::virtio::fs::share::{init, separate_umask};

/// Name of a channel's thread. The device's threads in the VMM have another.
const THREAD: &str = "share";

/// Most channels at once: one for each thread of the device, and as many again while old ones end.
const CHANNELS_MAX: usize = 32;

/// Most bytes of the share's words for a person.
pub(super) const WORDS_BYTES_MAX: usize = 512;

/// The share's end of a link.
#[derive(Debug)]
pub struct ShareServer {
    control: OwnedFd,
}

/// Shared state of all threads of a share.
struct Served {
    share: Arc<Share>,
    server: Server<Arc<Share>>,
    channels: AtomicUsize,
}

impl ShareServer {
    /// The words of a share once it serves.
    pub(super) const READY: &'static str = "ready";

    /// A packet with the VMM's end of a channel, in answer to a packet of one byte. It has no descriptor if
    /// the share has no room for a channel.
    pub(super) const CHANNEL: [u8; 1] = [0];

    /// The share's end, from its descriptor of [`ShareLink::pair`](super::ShareLink::pair).
    #[must_use]
    pub fn new(control: OwnedFd) -> ShareServer {
        ShareServer { control }
    }

    /// Sends the VMM the reason for not serving or not going on. Long words are cut.
    pub fn say(&self, words: &str) {
        let words = &words.as_bytes()[..words.len().min(WORDS_BYTES_MAX)];
        // A failure is as good: the VMM is gone, or sees the share's end.
        let _ = send(self.control.as_fd(), &[IoSlice::new(words)], None);
    }

    /// Serves until the VMM hangs up. The calling thread serves nothing itself.
    ///
    /// # Errors
    /// Nothing can be received from the control socket.
    pub fn run(&self, share: Share) -> io::Result<()> {
        let share = Arc::new(share);
        let server = Server::new(share.clone());
        let served = Arc::new(Served { share, server, channels: AtomicUsize::new(0) });
        self.say(ShareServer::READY);
        loop {
            let mut byte = [0];
            let mut parts = [IoSliceMut::new(&mut byte)];
            if receive(self.control.as_fd(), &mut parts, false, RecvFlags::empty())?.is_none() {
                return Ok(());
            }
            match self.answer(open_channel(&served).as_ref()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                answered => answered?,
            }
        }
    }

    /// Sends the VMM its end of a channel. A thread of the VMM waits for an answer in any case.
    fn answer(&self, channel: Option<&OwnedFd>) -> io::Result<()> {
        let send = |channel| send(self.control.as_fd(), &[IoSlice::new(&ShareServer::CHANNEL)], channel);
        send(channel.map(AsFd::as_fd)).or_else(|_| send(None))
    }
}

/// Makes a channel and serves it. Returns the VMM's end. `None` if there are too many, or the process has no
/// descriptor or thread left.
fn open_channel(served: &Arc<Served>) -> Option<OwnedFd> {
    let has_room = served.channels.fetch_add(1, Ordering::Relaxed) < CHANNELS_MAX;
    let open = || {
        let (ours, theirs) = connected()?;
        serve_apart(served, ours).map(|()| theirs)
    };
    let channel = if has_room { open().ok() } else { None };
    if channel.is_none() {
        served.channels.fetch_sub(1, Ordering::Relaxed);
    }
    channel
}

/// Serves a channel by a thread of its own, which takes it off the count at its end.
fn serve_apart(served: &Arc<Served>, channel: OwnedFd) -> io::Result<()> {
    let of_thread = served.clone();
    let named = std::thread::Builder::new().name(THREAD.to_owned());
    named.spawn(move || {
        let ready = separate_umask().map_err(io::Error::from).and_then(|()| Sheet::new());
        if let Ok(sheet) = ready {
            of_thread.serve(&channel, &sheet);
        }
        of_thread.channels.fetch_sub(1, Ordering::Relaxed);
    })?;
    Ok(())
}

impl Served {
    /// Serves a channel until the VMM closes it, or sends something no VMM sends.
    fn serve(&self, channel: &OwnedFd, sheet: &Sheet) {
        let mut request = vec![0; REQUEST_BYTES_MAX];
        let mut answer = Vec::with_capacity(ANSWER_BYTES_MAX);
        loop {
            let mut head = [0; HEAD_BYTES];
            let mut parts = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut request)];
            let received = receive(channel.as_fd(), &mut parts, false, RecvFlags::empty());
            let Ok(Some(Received { bytes, .. })) = received else { return };
            let asked = Call::read(head).zip(bytes.checked_sub(HEAD_BYTES));
            let Some((call, bytes)) = asked else { return };
            let message = &request[..bytes];
            let (outcome, file) = match call {
                Call::Request { room, lend } => {
                    let lent = self.request(sheet, message, room, lend, &mut answer);
                    lent.map_or((Outcome::Nothing, None), |file| (Outcome::Answered, file))
                }
                Call::Notice => {
                    self.request(sheet, message, 0, false, &mut answer);
                    continue;
                }
                Call::Lock { waits } => {
                    let Some(request) = LockRequest::read(message) else { return };
                    (done(self.share.lock(&request, waits)), None)
                }
                Call::Groups => {
                    let Some(groups) = groups(message) else { return };
                    (done(set_groups(&groups)), None)
                }
                Call::Afresh => {
                    self.share.forget_all();
                    (Outcome::Done { error: 0 }, None)
                }
            };
            let head = Reply { outcome, freed: self.share.lock_was_freed() }.head();
            let body = if outcome == Outcome::Answered { &answer[..] } else { &[] };
            let file = file.as_ref().map(AsFd::as_fd);
            if send(channel.as_fd(), &[IoSlice::new(&head), IoSlice::new(body)], file).is_err() {
                return;
            }
        }
    }

    /// Carries a FUSE request out. Returns its answer, and the file to lend with it.
    fn request(
        &self,
        sheet: &Sheet,
        message: &[u8],
        room: u32,
        lend: bool,
        answer: &mut Vec<u8>,
    ) -> Option<Option<std::fs::File>> {
        sheet.carry_out(&self.server, message, room, answer)?;
        init::allow_shared_maps(message, answer);
        Some(if lend { self.share.lend(message, answer) } else { None })
    }
}

fn done(result: io::Result<()>) -> Outcome {
    let error = result.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
    Outcome::Done { error }
}

/// The groups in a packet. `None` if no VMM sends it.
fn groups(message: &[u8]) -> Option<Vec<u32>> {
    let groups = message.chunks_exact(size_of::<u32>());
    let whole = groups.remainder().is_empty() && groups.len() <= GROUPS_MAX;
    whole.then(|| groups.map(|group| group.try_into().map_or(0, u32::from_le_bytes)).collect())
}
