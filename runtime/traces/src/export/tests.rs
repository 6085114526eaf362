//! The task against various collectors: working, missing, hanging or with invalid answers. The clock is the
//! test's own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use opentelemetry::trace::TraceFlags;
use opentelemetry_sdk::trace::SpanProcessor;
use tonic::Code;

use super::*;
use crate::queue::tests::span;
use crate::queue::{Queue, queue};

/// An answer of the played collector; it takes everything once it has no more of them.
enum Answer {
    Takes,
    Rejects(u64),
    Fails(Code),
    Hangs,
}

#[derive(Clone, Default)]
struct Played {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    /// The sizes of the received batches.
    asked: Arc<Mutex<Vec<usize>>>,
}

impl Played {
    fn with(answers: impl IntoIterator<Item = Answer>) -> Played {
        Played { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Played::default() }
    }

    fn asked(&self) -> Vec<usize> {
        self.asked.lock().unwrap().clone()
    }
}

impl Collector for Played {
    async fn send(&mut self, spans: Vec<SpanData>) -> Result<Rejected, Status> {
        self.asked.lock().unwrap().push(spans.len());
        let answer = self.answers.lock().unwrap().pop_front();
        match answer.unwrap_or(Answer::Takes) {
            Answer::Takes => Ok(Rejected::default()),
            Answer::Rejects(spans) => Ok(Rejected { spans, why: "no room".into() }),
            Answer::Fails(code) => Err(Status::new(code, "scripted")),
            Answer::Hangs => {
                // Like the client with a hanging one.
                tokio::time::sleep(Duration::from_secs(10)).await;
                Err(Status::deadline_exceeded("scripted"))
            }
        }
    }
}

fn begin(collector: &Played) -> (Queue, Exporting) {
    let (queue, spans) = queue();
    (queue, Exporting::begin(spans, "http://played:1".into(), collector.clone()))
}

fn put(queue: &Queue, count: usize) {
    for _ in 0..count {
        queue.on_end(span("x", TraceFlags::SAMPLED));
    }
}

#[tokio::test(start_paused = true)]
async fn spans_that_come_together_are_sent_together_and_in_bounded_messages() {
    let collector = Played::default();
    let (queue, _exporting) = begin(&collector);
    put(&queue, 3);
    tokio::time::sleep(GATHERED_FOR / 2).await;
    put(&queue, 4);
    tokio::time::sleep(GATHERED_FOR).await;
    assert_eq!(collector.asked(), [7]);
    put(&queue, BATCH_MAX + 1);
    tokio::time::sleep(2 * GATHERED_FOR).await;
    assert_eq!(collector.asked(), [7, BATCH_MAX, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_comes_back_soon_gets_what_it_missed() {
    let collector = Played::with([Answer::Fails(Code::Unavailable), Answer::Hangs, Answer::Takes]);
    let (queue, _exporting) = begin(&collector);
    put(&queue, 2);
    tokio::time::sleep(RETRIED_FOR).await;
    assert_eq!(collector.asked(), [2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_given_up_after_a_while_and_at_once_where_nothing_helps() {
    let gone = (0..100).map(|_| Answer::Fails(Code::Unavailable));
    let collector = Played::with(gone);
    let (queue, _exporting) = begin(&collector);
    put(&queue, 2);
    tokio::time::sleep(3 * RETRIED_FOR).await;
    let tries = collector.asked().len();
    assert!((3..8).contains(&tries), "{tries}");
    put(&queue, 1);
    tokio::time::sleep(2 * GATHERED_FOR).await;
    assert_eq!(collector.asked()[tries..][0], 1, "the first batch is gone");
    let nonsense = Played::with([Answer::Fails(Code::Internal)]);
    let (queue, _exporting) = begin(&nonsense);
    put(&queue, 5);
    tokio::time::sleep(RETRIED_FOR).await;
    assert_eq!(nonsense.asked(), [5]);
}

#[tokio::test(start_paused = true)]
async fn what_a_collector_rejects_is_not_sent_again_and_no_number_of_its_is_believed() {
    let collector = Played::with([Answer::Rejects(1), Answer::Rejects(u64::MAX)]);
    let (queue, _exporting) = begin(&collector);
    for _ in 0..2 {
        put(&queue, 2);
        tokio::time::sleep(RETRIED_FOR).await;
    }
    assert_eq!(collector.asked(), [2, 2]);
}

#[tokio::test(start_paused = true)]
async fn the_end_sends_what_is_there_without_waiting_for_more() {
    let collector = Played::default();
    let (queue, exporting) = begin(&collector);
    put(&queue, BATCH_MAX + 5);
    let began = Instant::now();
    exporting.finish().await;
    assert_eq!(collector.asked().iter().sum::<usize>(), BATCH_MAX + 5);
    assert_eq!(began.elapsed(), Duration::ZERO, "the clock is the test's own");
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_a_collector_that_hangs_for_two_seconds_only() {
    let collector = Played::with([Answer::Hangs, Answer::Hangs]);
    let (queue, exporting) = begin(&collector);
    put(&queue, 1);
    tokio::time::sleep(2 * GATHERED_FOR).await;
    let began = Instant::now();
    exporting.finish().await;
    assert_eq!(began.elapsed(), FINISHED_WITHIN);
}

#[tokio::test(start_paused = true)]
async fn the_end_tries_once_more_a_collector_that_was_gone() {
    let collector = Played::with([Answer::Fails(Code::Unavailable), Answer::Fails(Code::Unavailable)]);
    let (queue, exporting) = begin(&collector);
    put(&queue, 1);
    tokio::time::sleep(GATHERED_FOR + PAUSE_FIRST / 2).await;
    assert_eq!(collector.asked(), [1]);
    exporting.finish().await;
    assert_eq!(collector.asked(), [1, 1]);
}
