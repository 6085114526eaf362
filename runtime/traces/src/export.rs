//! The task for sending spans, batch by batch.
//!
//! ```text
//!            a span ends            the collector takes them
//!   waiting ────────────► sending ─────────────────────────► waiting
//!                           │  ▲ a pause, up to RETRIED_FOR
//!                  no answer│  │
//!                           ▼  │
//!                         pausing ── too long, or a permanent error ──► dropped, counted ──► waiting
//! ```
//!
//! While the collector is gone, spans gather in the queue and are dropped beyond its limit. The log has one
//! warning each time the collector becomes unavailable, and one line when it is back.

use std::time::Duration;

use opentelemetry_sdk::trace::SpanData;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::Status;
use tracing::{info, warn};

use crate::collector::{Collector, Rejected, may_be_repeated};
use crate::counters::{Reason, dropped, sent};

/// Spans in one message: OpenTelemetry's default. With the queue's limits a message stays below gRPC's usual
/// 4 MiB.
const BATCH_MAX: usize = 512;

/// How long to wait for more spans after the first.
const GATHERED_FOR: Duration = Duration::from_secs(1);

/// The first pause after a failure, and the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// How long a batch is retried. A collector's restart loses nothing, and a missing collector does not hold up
/// memory.
const RETRIED_FOR: Duration = Duration::from_secs(30);

/// How long the daemon waits for the last spans at its end.
const FINISHED_WITHIN: Duration = Duration::from_secs(2);

/// Longest collector's reason in the log, in characters: it is untrusted input.
const WHY_CHARS_MAX: usize = 300;

/// The running task.
#[derive(Debug)]
pub struct Exporting {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Exporting {
    /// Sends until [`Exporting::finish`], on the caller's runtime.
    pub(crate) fn begin(
        spans: mpsc::Receiver<SpanData>,
        address: String,
        collector: impl Collector,
    ) -> Exporting {
        let (stop, stopping) = watch::channel(false);
        let exporter = Exporter { spans, address, collector, stopping, is_failing: false };
        Exporting { stop, task: tokio::spawn(exporter.run()) }
    }

    /// Sends the spans gathered so far, for two seconds at most, and ends the task.
    pub async fn finish(mut self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(FINISHED_WITHIN, &mut self.task).await.is_err() {
            self.task.abort();
            warn!(within = ?FINISHED_WITHIN, "the last spans did not reach the collector of traces");
        }
    }
}

struct Exporter<C> {
    spans: mpsc::Receiver<SpanData>,
    /// The collector's address, for the log.
    address: String,
    collector: C,
    stopping: watch::Receiver<bool>,
    is_failing: bool,
}

impl<C: Collector> Exporter<C> {
    async fn run(mut self) {
        loop {
            let batch = self.batch().await;
            if batch.is_empty() {
                return;
            }
            self.deliver(batch).await;
        }
    }

    /// The next spans; none once the source has ended.
    async fn batch(&mut self) -> Vec<SpanData> {
        let mut batch = Vec::new();
        tokio::select! {
            biased;
            _ = self.spans.recv_many(&mut batch, BATCH_MAX) => {}
            () = stopped(&mut self.stopping) => {
                while batch.len() < BATCH_MAX && let Ok(span) = self.spans.try_recv() {
                    batch.push(span);
                }
                return batch;
            }
        }
        let until = Instant::now() + GATHERED_FOR;
        while !batch.is_empty() && batch.len() < BATCH_MAX {
            let room = BATCH_MAX - batch.len();
            let more = tokio::select! {
                biased;
                more = self.spans.recv_many(&mut batch, room) => more,
                () = stopped(&mut self.stopping) => 0,
                () = tokio::time::sleep_until(until) => 0,
            };
            if more == 0 {
                break;
            }
        }
        batch
    }

    /// Sends a batch, with retries if they may help.
    async fn deliver(&mut self, batch: Vec<SpanData>) {
        let count = batch.len() as u64;
        let until = Instant::now() + RETRIED_FOR;
        let mut pause = PAUSE_FIRST;
        loop {
            let status = match self.collector.send(batch.clone()).await {
                Ok(rejected) => return self.delivered(count, &rejected),
                Err(status) => status,
            };
            self.failed(&status);
            let was_stopping = *self.stopping.borrow();
            if was_stopping || !may_be_repeated(&status) || Instant::now() + pause > until {
                return dropped(Reason::Unanswered, count);
            }
            tokio::select! {
                biased;
                // At the stop: one immediate retry, in case the collector is back.
                () = stopped(&mut self.stopping) => {}
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn delivered(&mut self, count: u64, rejected: &Rejected) {
        let refused = rejected.spans.min(count);
        sent(count - refused);
        if refused > 0 {
            dropped(Reason::Rejected, refused);
            return self.warn_once(&rejected.why);
        }
        if self.is_failing {
            self.is_failing = false;
            info!(collector = self.address, "the collector of traces takes spans again");
        }
    }

    fn failed(&mut self, status: &Status) {
        self.warn_once(&format!("{:?}: {}", status.code(), status.message()));
    }

    fn warn_once(&mut self, why: &str) {
        if self.is_failing {
            return;
        }
        self.is_failing = true;
        let why: String = why.chars().take(WHY_CHARS_MAX).collect();
        warn!(
            collector = self.address,
            why, "the collector of traces does not take spans; they are dropped and counted"
        );
    }
}

/// Resolves once the daemon stops. A dropped sender also means a stopped daemon.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

#[cfg(test)]
mod tests;
