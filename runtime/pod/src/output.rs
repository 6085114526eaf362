//! Carries a container's output from its agent to its log.

use std::sync::Arc;

use proto_agent::agent::StreamKind;
use runtime_logs::{LogFile, LogStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::PodError;
use crate::acks::Acks;
use crate::outside::Output;
use crate::roster::Live;

/// The copiers of one container: done when every byte is in the log.
#[derive(Debug)]
pub(crate) struct Copiers(JoinSet<()>);

impl Copiers {
    /// Opens the container's streams where the log left off, and starts to copy.
    pub(crate) async fn open(
        live: &Live,
        container_id: &str,
        tty: bool,
        log: &LogFile,
        acks: &Arc<Acks>,
    ) -> Result<Copiers, PodError> {
        let mut copiers = JoinSet::new();
        for (kind, stream) in streams(tty) {
            let offset = acks.get(*stream);
            let opening = live.agent.output(container_id, "", *kind, offset);
            let output = live.call("opening the container's output", opening).await?;
            let copier = Copier { stream: *stream, offset, log: log.clone(), acks: acks.clone() };
            copiers.spawn(copier.run(output, container_id.to_owned()));
        }
        Ok(Copiers(copiers))
    }

    /// No streams: nothing to wait for.
    pub(crate) fn none() -> Copiers {
        Copiers(JoinSet::new())
    }

    /// Waits until all have ended.
    pub(crate) async fn finished(&mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

/// A terminal has one output.
fn streams(tty: bool) -> &'static [(StreamKind, LogStream)] {
    const BOTH: [(StreamKind, LogStream); 2] = [
        (StreamKind::STREAM_KIND_STDOUT, LogStream::Stdout),
        (StreamKind::STREAM_KIND_STDERR, LogStream::Stderr),
    ];
    if tty { &BOTH[..1] } else { &BOTH }
}

struct Copier {
    stream: LogStream,
    /// Where this copy begins in the stream.
    offset: u64,
    log: LogFile,
    acks: Arc<Acks>,
}

impl Copier {
    async fn run(self, output: Output, container_id: String) {
        let Copier { stream, offset, log, acks } = self;
        // The copy's callback gives a future each time, which cannot borrow from the callback itself.
        let agent = Arc::new(Mutex::new(output.acknowledge));
        let acknowledge = |count: u64| {
            let (agent, acks, total) = (agent.clone(), acks.clone(), offset + count);
            let container_id = container_id.as_str();
            async move {
                if let Err(error) = acks.set(stream, total) {
                    tracing::warn!(container_id, %error, "a restarted daemon may log some output twice");
                }
                if let Err(error) = agent.lock().await.acknowledge(total).await {
                    tracing::debug!(container_id, %error, "the agent does not take an acknowledgement");
                }
            }
        };
        if let Err(error) = runtime_logs::copy(output.reader, stream, &log, acknowledge).await {
            tracing::debug!(container_id, %error, "an output stream broke off");
        }
    }
}
