//! A process in a fake guest: its end, and its output. The guest keeps unacknowledged output.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use proto_agent::agent::StreamKind;
use proto_vmm::StopReport;
use runtime_guest::ProcessExit;
use runtime_spec::ExitReason;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::sync::watch;

use super::Script;
use crate::backend::{Acknowledge, BackendError, Output};

/// Bytes before a stream breaks off: in the middle of a line.
const BROKEN_OFF_BYTES: u64 = 1001;

/// Delay of late output after a program's end.
pub(crate) const LATE_BY: Duration = Duration::from_millis(20);

/// The end of a reset connection.
struct Failing;

impl AsyncRead for Failing {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct FakeProcess {
    ended: watch::Sender<Option<ProcessExit>>,
    stdout: Arc<Vec<u8>>,
    started: Arc<AtomicBool>,
    /// Acknowledged bytes of stdout: the guest has dropped them.
    forgotten: watch::Sender<u64>,
}

pub(crate) fn exit(exit_code: i32, oom_killed: bool, exited_at_ns: i64) -> ProcessExit {
    let reason = match exit_code {
        _ if oom_killed => ExitReason::OomKilled,
        0 => ExitReason::Completed,
        _ => ExitReason::Error,
    };
    ProcessExit { exit_code, reason, exited_at_ns }
}

impl FakeProcess {
    pub(crate) fn new(stdout: Vec<u8>) -> Self {
        let (ended, forgotten) = (watch::Sender::new(None), watch::Sender::new(0));
        FakeProcess { ended, stdout: Arc::new(stdout), started: Arc::default(), forgotten }
    }

    pub(crate) fn end(&self, exit_code: i32, oom_killed: bool) {
        self.end_as(exit(exit_code, oom_killed, 0));
    }

    pub(crate) fn end_as(&self, end: ProcessExit) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert(end);
            first
        });
    }

    pub(crate) fn ended(&self) -> watch::Receiver<Option<ProcessExit>> {
        self.ended.subscribe()
    }

    /// Lets the program run; false where it was let before.
    pub(crate) fn start(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn runs(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// Opens an output of a container's first process. The guest forgets everything before the place, and
    /// refuses to go back.
    pub(crate) fn output(
        &self,
        script: &Arc<Script>,
        kind: StreamKind,
        offset: u64,
        stopped: watch::Receiver<Option<StopReport>>,
        key: String,
    ) -> Result<Output, BackendError> {
        let stdout = kind == StreamKind::STREAM_KIND_STDOUT;
        let forgotten = *self.forgotten.borrow();
        if stdout && offset < forgotten {
            return Err(
                script.violate(format!("output is wanted from byte {offset}, and {forgotten} are forgotten"))
            );
        }
        if stdout {
            self.forgotten.send_replace(offset);
        }
        let said = self.said(script, kind, usize::try_from(offset).unwrap(), stopped);
        let reader: Box<dyn AsyncRead + Send + Unpin> =
            if stdout { broken_off(script, said) } else { Box::new(said) };
        let forgotten = stdout.then(|| self.forgotten.clone());
        Ok(Output {
            reader,
            acknowledge: Box::new(FakeAcknowledge { script: script.clone(), key, forgotten }),
        })
    }

    /// The output from this byte on.
    pub(crate) fn said(
        &self,
        script: &Arc<Script>,
        kind: StreamKind,
        offset: usize,
        mut stopped: watch::Receiver<Option<StopReport>>,
    ) -> DuplexStream {
        let (mut writer, reader) = tokio::io::duplex(64 << 10);
        let (process, script) = (self.clone(), script.clone());
        let mut ended = process.ended();
        tokio::spawn(async move {
            let bytes = if kind == StreamKind::STREAM_KIND_STDOUT { &process.stdout[..] } else { &[] };
            let late = script.state().late;
            if !late {
                process.write(&script, &mut writer, bytes, offset, stopped.clone()).await;
            }
            tokio::select! {
                _ = ended.wait_for(Option::is_some) => {}
                _ = stopped.wait_for(Option::is_some) => {}
            }
            if late {
                tokio::time::sleep(LATE_BY).await;
                process.write(&script, &mut writer, bytes, offset, stopped).await;
            }
            while script.state().lingering && script.count("agent.signal 9 all") == 0 {
                tokio::time::sleep(LATE_BY).await;
            }
        });
        reader
    }

    /// Writes from this byte on, as far as the guest can hold unacknowledged bytes, until the VM's end.
    async fn write(
        &self,
        script: &Script,
        writer: &mut DuplexStream,
        bytes: &[u8],
        mut offset: usize,
        mut stopped: watch::Receiver<Option<StopReport>>,
    ) {
        let held = match script.state().held_bytes {
            0 => bytes.len(),
            held => held,
        };
        let mut forgotten = self.forgotten.subscribe();
        while offset < bytes.len() {
            let end = bytes.len().min(usize::try_from(*forgotten.borrow_and_update()).unwrap() + held);
            if end > offset {
                if writer.write_all(&bytes[offset..end]).await.is_err() {
                    return;
                }
                offset = end;
                continue;
            }
            tokio::select! {
                _ = forgotten.changed() => {}
                _ = stopped.wait_for(Option::is_some) => return,
            }
        }
    }
}

/// The stream, or its first bytes alone where it is to break off.
fn broken_off(script: &Script, said: DuplexStream) -> Box<dyn AsyncRead + Send + Unpin> {
    let mut state = script.state();
    let Some(left) = state.breaks.checked_sub(1) else { return Box::new(said) };
    state.breaks = left;
    let beginning = said.take(BROKEN_OFF_BYTES);
    if left % 2 == 0 { Box::new(beginning) } else { Box::new(beginning.chain(Failing)) }
}

struct FakeAcknowledge {
    script: Arc<Script>,
    key: String,
    forgotten: Option<watch::Sender<u64>>,
}

#[async_trait]
impl Acknowledge for FakeAcknowledge {
    async fn acknowledge(&mut self, total: u64) -> io::Result<()> {
        self.script.state().acknowledged.insert(self.key.clone(), total);
        if let Some(forgotten) = &self.forgotten {
            forgotten.send_if_modified(|forgotten| {
                let more = total > *forgotten;
                *forgotten = total.max(*forgotten);
                more
            });
        }
        Ok(())
    }
}
