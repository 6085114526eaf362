//! Carries a container's output from its agent to its log.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proto_agent::agent::StreamKind;
use runtime_logs::{LineEnd, LogStream};
use runtime_spec::ContainerSpec;
use tokio::io::AsyncRead;
use tokio::task::JoinSet;

use super::followers::FollowedReader;
use super::output::ContainerOutput;
use super::output_reader::{OutputPlace, OutputReader, OutputSource};
use crate::backend::Output;
use crate::error::PodError;
use crate::live::Live;

/// The pause between attempts to record how much is in the log. Until then the agent keeps its bytes, and the
/// program waits once its buffer is full.
const BETWEEN_NOTES: Duration = Duration::from_secs(1);

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
            let copier = Copier::new(live, container_id, spec, (*kind, *stream), output);
            let opened = live.call("opening the container's output", copier.source.open(0)).await?;
            copiers.0.spawn(copier.begin(opened));
        }
        Ok(copiers)
    }

    /// Continues each stream from the end of its log.
    pub(crate) fn resume(
        live: &Live,
        container_id: &str,
        spec: &ContainerSpec,
        output: &ContainerOutput,
    ) -> Copiers {
        let mut copiers = Copiers(JoinSet::new());
        for (kind, stream) in streams(spec.tty) {
            let copier = Copier::new(live, container_id, spec, (*kind, *stream), output);
            copiers.0.spawn(copier.go_on());
        }
        copiers
    }

    /// Waits until all copiers have ended.
    pub(crate) async fn finished(&mut self) {
        while self.0.join_next().await.is_some() {}
    }

    /// Detaches the copiers.
    pub(crate) fn let_go(&mut self) {
        self.0.detach_all();
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
    source: OutputSource,
    stream: LogStream,
    line_end: LineEnd,
    to: ContainerOutput,
}

impl Copier {
    fn new(
        live: &Live,
        container_id: &str,
        spec: &ContainerSpec,
        (kind, stream): (StreamKind, LogStream),
        to: &ContainerOutput,
    ) -> Copier {
        let source = OutputSource { live: live.clone(), container_id: container_id.to_owned(), kind };
        let line_end = if spec.tty { LineEnd::Terminal } else { LineEnd::Newline };
        Copier { source, stream, line_end, to: to.clone() }
    }

    /// Copies a stream from its first byte on.
    async fn begin(self, opened: Output) {
        let Output { reader, acknowledge } = opened;
        let place = OutputPlace::default();
        *place.acknowledge.lock().await = Some(acknowledge);
        self.copy(place, Some(reader)).await;
    }

    /// Copies a stream from the place recorded by an earlier daemon.
    async fn go_on(self) {
        let place = OutputPlace::default();
        let known = self.known().await;
        place.logged.store(known, Ordering::Release);
        self.to.log.mend().await;
        self.copy(place, None).await;
    }

    async fn copy(self, place: OutputPlace, open: Option<Box<dyn AsyncRead + Send + Unpin>>) {
        let offset = place.logged.load(Ordering::Acquire);
        let place = Arc::new(place);
        let reader = OutputReader::new(self.source.clone(), place.clone(), open);
        let followers = self.to.followers.clone();
        let reader = FollowedReader::new(Box::new(reader), followers, self.stream);
        let (copier, place) = (&self, &place);
        let acknowledge = |count: u64| copier.acknowledge(place, offset + count);
        let copying = runtime_logs::copy(reader, self.stream, self.line_end, &self.to.log, acknowledge);
        if let Err(error) = copying.await {
            tracing::warn!(container = self.source.container_id, %error, "an output stream broke off");
        }
    }

    /// Reads the place in the log recorded by an earlier daemon, with retries.
    async fn known(&self) -> u64 {
        let mut tries = 0;
        loop {
            let taken_over = self.to.acks.take_over().await;
            match taken_over.and_then(|()| self.to.acks.get(self.stream)) {
                Ok(known) => return known,
                Err(error) => self.pause(&mut tries, &error).await,
            }
        }
    }

    /// Records how much is in the log, with retries, and only then lets the agent forget it. A restarted
    /// daemon continues from the record, and the agent refuses to go back.
    async fn acknowledge(&self, place: &OutputPlace, total: u64) {
        let mut tries = 0;
        while let Err(error) = self.to.acks.set(self.stream, total) {
            self.pause(&mut tries, &error).await;
        }
        place.logged.store(total, Ordering::Release);
        if let Some(agent) = &mut *place.acknowledge.lock().await
            && let Err(error) = agent.acknowledge(total).await
        {
            let container = &self.source.container_id;
            tracing::debug!(container, %error, "the agent does not take an acknowledgement");
        }
    }

    /// Waits for the next try to read or write the place in the log.
    async fn pause(&self, tries: &mut u32, error: &std::io::Error) {
        if *tries == 0 {
            let container = &self.source.container_id;
            tracing::warn!(container, %error, "the place in a log is not written down; its output waits");
        }
        *tries = tries.saturating_add(1);
        tokio::time::sleep(BETWEEN_NOTES).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use async_trait::async_trait;
    use runtime_logs::LogFile;
    use tokio::sync::mpsc;

    use super::*;
    use crate::backend::Acknowledge;
    use crate::io::acks::Acks;
    use crate::tests::{World, container};

    struct Acknowledged(mpsc::UnboundedSender<u64>);

    #[async_trait]
    impl Acknowledge for Acknowledged {
        async fn acknowledge(&mut self, total: u64) -> io::Result<()> {
            self.0.send(total).map_err(io::Error::other)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_agent_keeps_what_is_not_written_down_as_logged() {
        let world = World::new().await;
        let (pod_id, id) = world.with_container().await;
        let live = world.node.roster.pod(&pod_id).unwrap().live.unwrap();
        let gone = world.dir.path().join("gone");
        let acks = Acks::found(&gone.join("acks"), &gone.join("former"), &world.node.pools.state);
        let output = ContainerOutput::new(LogFile::discard(), acks);
        let (kind, stream) = streams(true)[0];
        let copier = Copier::new(&live, &id, &container("web"), (kind, stream), &output);
        let place = OutputPlace::default();
        let (sender, mut acknowledged) = mpsc::unbounded_channel();
        *place.acknowledge.lock().await = Some(Box::new(Acknowledged(sender)));
        let acknowledging = copier.acknowledge(&place, 7);
        tokio::pin!(acknowledging);
        // Time is paused: each turn of this is a try.
        let tries = tokio::time::timeout(BETWEEN_NOTES * 5, &mut acknowledging).await;
        assert!(tries.is_err() && acknowledged.try_recv().is_err());
        assert_eq!(place.logged.load(Ordering::Acquire), 0);
        std::fs::create_dir(&gone).unwrap();
        acknowledging.await;
        assert_eq!(acknowledged.recv().await, Some(7));
        assert_eq!(output.acks.get(stream).unwrap(), 7);
    }
}
