//! Waits for pods that were being started when a command began. A start goes on after its caller is gone,
//! such as a kubelet that was stopped, and its pod is in no list before its end.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::daemon::{Daemon, DaemonError};
use crate::show::out;

/// How long the starts may take. The daemon gives each of their steps up earlier.
const STARTED_WITHIN: Duration = Duration::from_secs(240);

/// Pause between two questions.
const PAUSE: Duration = Duration::from_millis(500);

/// Pods are still being started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartingError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(
        "pods are still being started after {} s: {pods}. Stop whoever starts them, and repeat the command",
        STARTED_WITHIN.as_secs()
    )]
    Late { pods: usize },
}

/// Waits until no pod is being started that is being started now. Later ones are not waited for.
///
/// # Errors
/// The daemon does not answer, or some are not done in time.
pub(crate) async fn wait(daemon: &Daemon) -> Result<(), StartingError> {
    until_done(STARTED_WITHIN, async || Ok(daemon.status().await?.starting)).await
}

async fn until_done(
    most: Duration,
    starting: impl AsyncFn() -> Result<BTreeSet<String>, DaemonError>,
) -> Result<(), StartingError> {
    let mut awaited = starting().await?;
    if awaited.is_empty() {
        return Ok(());
    }
    out::complain(format_args!("waiting for pods being started: {}", awaited.len()));
    let deadline = tokio::time::Instant::now() + most;
    while !awaited.is_empty() {
        if tokio::time::Instant::now() > deadline {
            return Err(StartingError::Late { pods: awaited.len() });
        }
        tokio::time::sleep(PAUSE).await;
        let now = starting().await?;
        awaited.retain(|id| now.contains(id));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    async fn waited(answers: &[&[&str]]) -> (Result<(), String>, usize) {
        let asked = RefCell::new(0);
        let starting = async || {
            let number = *asked.borrow();
            *asked.borrow_mut() += 1;
            let ids = answers.get(number).or(answers.last()).copied().unwrap_or_default();
            Ok(ids.iter().map(|&id| id.to_owned()).collect())
        };
        let outcome = until_done(Duration::from_secs(10), starting).await;
        (outcome.map_err(|error| error.to_string()), asked.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn pods_being_started_are_waited_for_and_later_ones_are_not() {
        assert_eq!(waited(&[&[]]).await, (Ok(()), 1));
        assert_eq!(waited(&[&["a", "b"], &["b", "c"], &["c"]]).await, (Ok(()), 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_without_an_end_is_given_up() {
        let (outcome, asked) = waited(&[&["a"]]).await;
        let text = outcome.unwrap_err();
        assert!(text.starts_with("pods are still being started after ") && text.contains(": 1. "), "{text}");
        assert!((10..30).contains(&asked), "{asked}");
    }
}
