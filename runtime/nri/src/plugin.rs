//! One plugin: its queue, and the task sending its events one after the other.
//!
//! ```text
//!   set.rs ── call, notice ──► queue ──► task ── ttrpc ──► plugin
//!                                         └─ answers too late, or broken ──► closed
//! ```
//!
//! A call is sent in its place even if its caller gives up first, so the plugin receives every event it
//! subscribed to.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use proto_nri::nri::Event;
use proto_nri::nri_ttrpc::PluginClient;
use tokio::sync::{mpsc, oneshot, watch};

use crate::deadline::{Answer, Broken, Deadline};
use crate::error::NriError;
use crate::event::{self, Events};
use crate::name::PluginName;

/// Queue length per plugin: a burst of a hundred pods starting or ending at once. A plugin that falls further
/// behind is dropped.
pub(crate) const QUEUE_MAX: usize = 2048;

/// Time limit for a call waiting behind others. Its caller gets an error afterwards.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// A registered plugin, as seen by the sources of events.
#[derive(Debug)]
pub(crate) struct Plugin {
    pub(crate) name: PluginName,
    events: Events,
    request_timeout: Duration,
    queue: mpsc::Sender<Job>,
    /// Set to true to close the plugin.
    close: watch::Sender<bool>,
}

/// A call to the plugin, with the handling of its answer.
type Work = Box<dyn FnOnce(PluginClient) -> BoxFuture<'static, Result<(), Broken>> + Send>;

/// An entry of a plugin's queue.
pub(crate) struct Job {
    event: Event,
    /// True if no caller waits for the answer.
    is_notice: bool,
    work: Work,
}

impl Plugin {
    /// A plugin and its queue.
    pub(crate) fn new(
        name: PluginName,
        events: Events,
        request_timeout: Duration,
    ) -> (Arc<Plugin>, mpsc::Receiver<Job>) {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let close = watch::Sender::new(false);
        (Arc::new(Plugin { name, events, request_timeout, queue, close }), waiting)
    }

    pub(crate) fn wants(&self, event: Event) -> bool {
        self.events.has(event)
    }

    /// Asks the plugin and waits for its answer. `None` if it did not subscribe to the event, or is gone.
    pub(crate) async fn call<A, F>(
        &self,
        event: Event,
        rpc: impl FnOnce(PluginClient, Deadline) -> F + Send + 'static,
    ) -> Result<Option<A>, NriError>
    where
        A: Send + 'static,
        F: Future<Output = ttrpc::Result<A>> + Send + 'static,
    {
        if !self.wants(event) {
            return Ok(None);
        }
        let (answers, answer) = oneshot::channel();
        let work = work(self.request_timeout, rpc, move |outcome| {
            // The caller may have given up.
            let _ = answers.send(outcome);
        });
        self.enqueue(Job { event, is_notice: false, work });
        match tokio::time::timeout(BUSY_MAX, answer).await {
            Ok(Ok(Ok(answer))) => Ok(Some(answer)),
            Ok(Ok(Err(message))) => {
                Err(NriError::Refused { plugin: self.name.clone(), event: event::name(event), message })
            }
            // The plugin was dropped, together with this job.
            Ok(Err(_)) => Ok(None),
            Err(_) => Err(NriError::Busy { plugin: self.name.clone(), event: event::name(event) }),
        }
    }

    /// Sends an event without waiting. `then` gets the answer.
    pub(crate) fn notice<A, F>(
        &self,
        event: Event,
        rpc: impl FnOnce(PluginClient, Deadline) -> F + Send + 'static,
        then: impl FnOnce(A) + Send + 'static,
    ) where
        A: Send + 'static,
        F: Future<Output = ttrpc::Result<A>> + Send + 'static,
    {
        if !self.wants(event) {
            return;
        }
        let plugin = self.name.clone();
        let work = work(self.request_timeout, rpc, move |outcome| match outcome {
            Ok(answer) => then(answer),
            Err(message) => {
                tracing::warn!(%plugin, event = event::name(event), message, "a plugin fails at an event");
            }
        });
        self.enqueue(Job { event, is_notice: true, work });
    }

    fn enqueue(&self, job: Job) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.queue.try_send(job)
            && !self.close.send_replace(true)
        {
            tracing::error!(plugin = %self.name, "{}", Broken::Behind);
        }
    }
}

fn work<A, F>(
    timeout: Duration,
    rpc: impl FnOnce(PluginClient, Deadline) -> F + Send + 'static,
    then: impl FnOnce(Answer<A>) + Send + 'static,
) -> Work
where
    A: Send + 'static,
    F: Future<Output = ttrpc::Result<A>> + Send + 'static,
{
    Box::new(move |client| {
        Box::pin(async move {
            let deadline = Deadline(timeout);
            then(deadline.call(rpc(client, deadline)).await?);
            Ok(())
        })
    })
}

/// Takes the queued calls and drops the queued notices. The list of pods and containers, read afterwards,
/// includes their effects.
pub(crate) fn waiting_calls(queue: &mut mpsc::Receiver<Job>) -> VecDeque<Job> {
    let mut calls = VecDeque::new();
    while let Ok(job) = queue.try_recv() {
        if !job.is_notice {
            calls.push_back(job);
        }
    }
    calls
}

/// Sends the jobs in `first`, then those of the queue. Returns a reason when the plugin is dropped, its
/// stream has ended, or it does not answer.
pub(crate) async fn run(
    plugin: &Plugin,
    client: PluginClient,
    (mut first, mut queue): (VecDeque<Job>, mpsc::Receiver<Job>),
    ended: impl Future<Output = ()>,
) -> Broken {
    let mut close = plugin.close.subscribe();
    let sending = async {
        loop {
            let job = match first.pop_front() {
                Some(job) => job,
                None => match queue.recv().await {
                    Some(job) => job,
                    // All senders are gone.
                    None => return Broken::Ended,
                },
            };
            if let Err(broken) = (job.work)(client.clone()).await {
                tracing::error!(plugin = %plugin.name, event = event::name(job.event), "a plugin fails");
                return broken;
            }
        }
    };
    tokio::select! {
        broken = sending => broken,
        () = ended => Broken::Ended,
        _ = close.wait_for(|close| *close) => Broken::Behind,
    }
}
