//! Carries a container's output from its agent to its log.

use std::sync::Arc;

use proto_agent::agent::StreamKind;
use runtime_logs::LogStream;
use runtime_spec::ContainerSpec;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::followers::FollowedReader;
use super::output::ContainerOutput;
use crate::backend::Output;
use crate::error::PodError;
use crate::live::Live;

/// The copiers of one container: done when every byte is in the log.
#[derive(Debug)]
pub(crate) struct Copiers(JoinSet<()>);

impl Copiers {
    /// Opens the container's streams and starts to copy.
    pub(crate) async fn open(
        live: &Live,
        container_id: &str,
        spec: &ContainerSpec,
        output: &ContainerOutput,
    ) -> Result<Copiers, PodError> {
        let mut copiers = Copiers(JoinSet::new());
        if spec.stdin && spec.tty {
            output.followers.of(LogStream::Stdout).keep_beginning();
        }
        for (kind, stream) in streams(spec.tty) {
            let copier = Copier::new(output, *stream, 0);
            copiers.add(live, container_id, *kind, copier).await?;
        }
        Ok(copiers)
    }

    /// Goes on, in each stream, where its log was left. A stream that the agent does not have any more
    /// was acknowledged whole.
    pub(crate) async fn resume(
        live: &Live,
        container_id: &str,
        spec: &ContainerSpec,
        output: &ContainerOutput,
    ) -> Copiers {
        let mut copiers = Copiers(JoinSet::new());
        for (kind, stream) in streams(spec.tty) {
            let offset = output.acks.get(*stream);
            let copier = Copier::new(output, *stream, offset);
            if let Err(error) = copiers.add(live, container_id, *kind, copier).await {
                tracing::info!(container_id, offset, error = error.chain(), "a stream is not open again");
                output.followers.of(*stream).end();
            }
        }
        copiers
    }

    async fn add(
        &mut self,
        live: &Live,
        container_id: &str,
        kind: StreamKind,
        copier: Copier,
    ) -> Result<(), PodError> {
        let opening = live.agent.output(container_id, kind, copier.offset);
        let output = live.call("opening the container's output", opening).await?;
        self.0.spawn(copier.run(output, container_id.to_owned()));
        Ok(())
    }

    /// Waits until all copiers have ended.
    pub(crate) async fn finished(&mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

/// The streams of a container; a terminal has one output.
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
    to: ContainerOutput,
}

impl Copier {
    fn new(to: &ContainerOutput, stream: LogStream, offset: u64) -> Copier {
        Copier { stream, offset, to: to.clone() }
    }

    async fn run(self, output: Output, container_id: String) {
        let Copier { stream, offset, to: ContainerOutput { log, acks, followers } } = self;
        let reader = FollowedReader::new(output.reader, followers, stream);
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
        if let Err(error) = runtime_logs::copy(reader, stream, &log, acknowledge).await {
            tracing::debug!(container_id, %error, "an output stream broke off");
        }
    }
}
