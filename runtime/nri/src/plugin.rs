//! One plugin: its queue, and the task that sends what is in it, one event after the other.
//!
//! ```text
//!   set.rs ── call, notice ──► queue ──► task ── ttrpc ──► plugin
//!                                         └─ answers too late, or broken ──► closed
//! ```
//!
//! A call that is given up while it waits is sent all the same, in its place: the plugin hears of every event that it wants.

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

/// Events that may wait for a plugin: a burst of a hundred pods that start or end at once. A plugin that falls further behind is dropped.
pub(crate) const QUEUE_MAX: usize = 2048;

/// How long a call may wait behind others, before whoever waits for it gets an error.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// A plugin that has registered, as those see it who have events for it.
#[derive(Debug)]
pub(crate) struct Plugin {
    pub(crate) name: PluginName,
    events: Events,
    request_timeout: Duration,
    queue: mpsc::Sender<Job>,
    /// Whether the plugin has to be closed.
    close: watch::Sender<bool>,
}

/// What is sent, and what comes of it.
type Work = Box<dyn FnOnce(PluginClient) -> BoxFuture<'static, Result<(), Broken>> + Send>;

/// Something in a plugin's queue.
pub(crate) struct Job {
    event: Event,
    /// Whether nobody waits for it.
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

    /// Asks the plugin, and waits for its answer. `None` where it does not want the event, or is gone.
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
            // Whoever asked may have given up.
            let _ = answers.send(outcome);
        });
        self.enqueue(Job { event, is_notice: false, work });
        match tokio::time::timeout(BUSY_MAX, answer).await {
            Ok(Ok(Ok(answer))) => Ok(Some(answer)),
            Ok(Ok(Err(message))) => {
                Err(NriError::Refused { plugin: self.name.clone(), event: event::name(event), message })
            }
            // The plugin was dropped, and this with it.
            Ok(Err(_)) => Ok(None),
            Err(_) => Err(NriError::Busy { plugin: self.name.clone(), event: event::name(event) }),
        }
    }

    /// Has the plugin hear of an event, and does not wait. `then` gets its answer.
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

/// Takes what waits already, without what nobody waits for: what is seen afterwards shows it.
pub(crate) fn waiting_calls(queue: &mut mpsc::Receiver<Job>) -> VecDeque<Job> {
    let mut calls = VecDeque::new();
    while let Ok(job) = queue.try_recv() {
        if !job.is_notice {
            calls.push_back(job);
        }
    }
    calls
}

/// Sends what is in the queue, after what was in it before, until the plugin is dropped, its stream has ended, or it does not answer, and
/// returns why.
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
                    // Nobody has anything for it any more.
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
