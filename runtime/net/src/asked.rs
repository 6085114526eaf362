//! Runs an expensive question once for all its concurrent callers. Owns the last answer and shares it with
//! callers already waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::NetError;

/// How long an answer is valid for the callers that waited for it.
const FRESH: Duration = Duration::from_secs(1);

type Answer = Result<(), Arc<NetError>>;

/// The last answer and its time. The caller computing the next one holds the lock.
#[derive(Debug, Default)]
pub(crate) struct Asked(Mutex<Option<(Instant, Answer)>>);

impl Asked {
    /// Computes an answer, or waits for the one already being computed.
    pub(crate) async fn ask<F: Future<Output = Result<(), NetError>>>(
        &self,
        seek: impl FnOnce() -> F,
    ) -> Answer {
        let came = Instant::now();
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = &*last
            && *at > came
            && at.elapsed() < FRESH
        {
            return answer.clone();
        }
        let answer = seek().await.map_err(Arc::new);
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn those_who_come_together_get_one_answer_and_later_ones_another() {
        let (asked, sought, go) = (Asked::default(), AtomicUsize::new(0), Notify::new());
        let seek = || async {
            sought.fetch_add(1, Ordering::SeqCst);
            go.notified().await;
            Ok(())
        };
        let release = async { go.notify_one() };
        let (first, second, third, ()) =
            futures::join!(asked.ask(seek), asked.ask(seek), asked.ask(seek), release);
        assert!(first.is_ok() && second.is_ok() && third.is_ok());
        assert_eq!(sought.load(Ordering::SeqCst), 1);
        go.notify_one();
        asked.ask(seek).await.unwrap();
        assert_eq!(sought.load(Ordering::SeqCst), 2);
    }
}
