//! The agent's end of a process's pipe. Its calls run outside of the agent's own thread. A program in
//! sendfile(2) or splice(2) holds its pipe's lock while it waits for the other file (`splice_file_to_pipe`,
//! fs/splice.c). Every other reader, writer or closer of the pipe then waits in the kernel for the program.
//! Nothing can end this wait, and `O_NONBLOCK` does not count. The agent has only one serving thread, so it
//! must never touch a pipe.
//!
//! Polling for readiness (poll, epoll) takes no lock. A terminal's master side is treated the same, though it
//! does not need it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::sync::oneshot;

/// Most threads, including those blocked by programs. Each takes less than 100 KiB of the guest's memory,
/// including its read buffer. Further pipes wait until a program releases one.
const THREADS_MAX: usize = 256;
/// Most idle threads: as many as the outputs of one process.
const IDLE_MAX: usize = 2;
/// Stack of one thread. A call has little more than its arguments there.
const STACK_BYTES: usize = 64 * 1024;

type Call = Box<dyn FnOnce() + Send>;

/// A nonblocking end of a pipe.
#[derive(Debug)]
pub(super) struct PipeEnd(Option<Arc<OwnedFd>>);

impl PipeEnd {
    /// Takes ownership of the end.
    pub(super) fn new(end: OwnedFd) -> io::Result<PipeEnd> {
        rustix::io::ioctl_fionbio(&end, true)?;
        Ok(PipeEnd(Some(Arc::new(end))))
    }

    /// Returns a second descriptor of the same end, only to be watched for readiness. It must be closed
    /// before this value is dropped, because closing the last descriptor takes the pipe's lock.
    pub(super) fn to_watch(&self) -> io::Result<OwnedFd> {
        self.as_fd().try_clone_to_owned()
    }

    /// Makes a call on the end, on another thread. The call continues even if the caller stops waiting.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(BorrowedFd<'_>) -> T + Send + 'static,
    ) -> io::Result<T> {
        let gone = || io::Error::other("the thread of a pipe has ended");
        let end = self.0.clone().ok_or_else(gone)?;
        let (sender, outcome) = oneshot::channel();
        submit(Box::new(move || {
            // The caller may have stopped waiting.
            let _ = sender.send(call(end.as_fd()));
        }));
        // A panicking thread ends the agent, so the sender is never dropped.
        outcome.await.map_err(|_| gone())
    }
}

impl AsFd for PipeEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("the end is there until the value is dropped").as_fd()
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        let end = self.0.take();
        submit(Box::new(move || drop(end)));
    }
}

/// Succeeds if one of the flags is set, or the descriptor has failed or ended.
pub(super) fn ready(descriptor: BorrowedFd<'_>, flags: PollFlags) -> io::Result<()> {
    match poll(descriptor, flags)?.is_empty() {
        true => Err(io::ErrorKind::WouldBlock.into()),
        false => Ok(()),
    }
}

/// The flags currently set for the descriptor.
pub(super) fn poll(descriptor: BorrowedFd<'_>, flags: PollFlags) -> io::Result<PollFlags> {
    let mut asked = [PollFd::from_borrowed_fd(descriptor, flags)];
    rustix::event::poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(asked[0].revents())
}

/// The threads, and the calls not yet taken by one: at most two for each end.
#[derive(Default)]
struct Threads {
    calls: VecDeque<Call>,
    idle: usize,
    count: usize,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads { calls: VecDeque::new(), idle: 0, count: 0 });
static CALLED: Condvar = Condvar::new();

fn threads() -> MutexGuard<'static, Threads> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the call to an idle thread, so that no call waits behind a hanging one.
fn submit(call: Call) {
    let mut threads = threads();
    threads.calls.push_back(call);
    if threads.calls.len() <= threads.idle {
        CALLED.notify_one();
        return;
    }
    if threads.count == THREADS_MAX {
        return;
    }
    let thread = std::thread::Builder::new().name("pipe".into()).stack_size(STACK_BYTES);
    match thread.spawn(work) {
        Ok(_) => threads.count += 1,
        // Another thread takes the call after its current one.
        Err(_) if threads.count > 0 => {}
        Err(error) => {
            tracing::warn!(%error, "there is no thread for pipes; a program can hold the agent up");
            let call = threads.calls.pop_back();
            drop(threads);
            if let Some(call) = call {
                call();
            }
        }
    }
}

/// Makes calls until none is left for this thread, and enough idle threads wait for the next.
fn work() {
    let mut threads = threads();
    loop {
        if let Some(call) = threads.calls.pop_front() {
            drop(threads);
            call();
            threads = self::threads();
            continue;
        }
        if threads.idle == IDLE_MAX {
            threads.count -= 1;
            return;
        }
        threads.idle += 1;
        threads = CALLED
            .wait_while(threads, |threads| threads.calls.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        threads.idle -= 1;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use rustix::pipe::SpliceFlags;

    use super::*;

    /// How long a pipe is held at most. The test has failed by then.
    const HELD_MOST: Duration = Duration::from_secs(20);

    /// A program holding its pipe's lock: it moves bytes into the pipe from an empty socket.
    pub(crate) struct Holder {
        socket: Arc<UnixStream>,
        in_time: Arc<AtomicBool>,
    }

    impl Holder {
        /// Returns once the pipe is held.
        pub(crate) fn hold(pipe: OwnedFd) -> Holder {
            let (socket, theirs) = UnixStream::pair().unwrap();
            let (named, name) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                named.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
                let _ = rustix::pipe::splice(&theirs, None, &pipe, None, 4096, SpliceFlags::empty());
            });
            let stat = format!("/proc/self/task/{}/syscall", name.recv().unwrap());
            // splice(2) has number 275. The thread is in it, and waits.
            while !std::fs::read_to_string(&stat).is_ok_and(|call| call.starts_with("275 ")) {
                std::thread::yield_now();
            }
            let (socket, in_time) = (Arc::new(socket), Arc::new(AtomicBool::new(false)));
            let (late, let_go) = (Arc::clone(&socket), Arc::clone(&in_time));
            std::thread::spawn(move || {
                std::thread::sleep(HELD_MOST);
                if !let_go.load(Ordering::Relaxed) {
                    let _ = late.shutdown(std::net::Shutdown::Both);
                }
            });
            Holder { socket, in_time }
        }

        /// Ends the program. Fails if the caller was blocked by the program meanwhile.
        pub(crate) fn let_go(self) {
            let mut socket = &*self.socket;
            socket.write_all(b"!").expect("nobody waited for the pipe until it was given up");
            self.in_time.store(true, Ordering::Relaxed);
            socket.shutdown(std::net::Shutdown::Both).unwrap();
        }
    }

    #[tokio::test]
    async fn a_call_on_a_pipe_that_a_program_holds_holds_nobody_else_up() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (other, mut other_writer) = std::io::pipe().unwrap();
        let (held, other) = (PipeEnd::new(reader.into()).unwrap(), PipeEnd::new(other.into()).unwrap());
        let holder = Holder::hold(writer.into());
        let read = |end: BorrowedFd<'_>| {
            let mut place = [0; 8];
            rustix::io::read(end, &mut place).map(|count| place[..count].to_vec())
        };
        let reading = held.call(read);
        tokio::pin!(reading);
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut reading).await.is_err());
        other_writer.write_all(b"other").unwrap();
        assert_eq!(other.call(read).await.unwrap().unwrap(), b"other");
        holder.let_go();
        assert_eq!(reading.await.unwrap().unwrap(), b"!");
    }

    #[tokio::test]
    async fn an_end_of_a_pipe_that_a_program_holds_is_closed_by_another_thread() {
        let (reader, writer) = std::io::pipe().unwrap();
        let end = PipeEnd::new(reader.into()).unwrap();
        let holder = Holder::hold(writer.into());
        drop(end);
        holder.let_go();
    }

    #[tokio::test]
    async fn threads_without_work_are_few() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let end = Arc::new(PipeEnd::new(reader.into()).unwrap());
        let calls = (0..64).map(|_| end.call(|_| std::thread::sleep(Duration::from_millis(1))));
        futures::future::join_all(calls).await;
        // Threads end a moment after their calls. Those of other tests count, too.
        while threads().count > IDLE_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
