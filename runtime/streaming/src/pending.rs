//! Sessions with a URL, but without their client yet. Each is kept by its token, for one use within a minute.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::TryRngCore;
use rand::rngs::OsRng;
use tokio::time::Instant;

use crate::error::ServerError;

/// How long a URL is valid.
const URL_LIFETIME: Duration = Duration::from_secs(60);

/// Most valid URLs at a time.
const PENDING_MAX: usize = 1000;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 16;

/// The sessions by token.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    waiting: Mutex<HashMap<String, (Instant, T)>>,
}

impl<T> Pending<T> {
    pub(crate) fn new() -> Pending<T> {
        Pending { waiting: Mutex::default() }
    }

    /// Stores the session and returns its token.
    pub(crate) fn put(&self, session: T) -> Result<String, ServerError> {
        let mut bytes = [0; TOKEN_BYTES];
        OsRng.try_fill_bytes(&mut bytes).map_err(|_| ServerError::NoRandomness)?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let now = Instant::now();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, (until, _)| *until > now);
        if waiting.len() >= PENDING_MAX {
            return Err(ServerError::TooManyPending(PENDING_MAX));
        }
        waiting.insert(token.clone(), (now + URL_LIFETIME, session));
        Ok(token)
    }

    /// Returns the session to the first caller in time.
    pub(crate) fn take(&self, token: &str) -> Option<T> {
        let (until, session) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(token)?;
        (until > Instant::now()).then_some(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_token_is_good_once_and_for_a_minute() {
        let pending = Pending::new();
        let token = pending.put(1).unwrap();
        assert_eq!(pending.take("other"), None);
        assert_eq!(pending.take(&token), Some(1));
        assert_eq!(pending.take(&token), None);
        let late = pending.put(2).unwrap();
        tokio::time::advance(URL_LIFETIME).await;
        assert_eq!(pending.take(&late), None);
    }

    #[tokio::test(start_paused = true)]
    async fn urls_are_bounded_until_the_old_ones_are_over() {
        let pending = Pending::new();
        let tokens: std::collections::HashSet<_> =
            (0..PENDING_MAX).map(|n| pending.put(n).unwrap()).collect();
        assert_eq!(tokens.len(), PENDING_MAX);
        assert!(matches!(pending.put(0), Err(ServerError::TooManyPending(PENDING_MAX))));
        tokio::time::advance(URL_LIFETIME).await;
        pending.put(0).unwrap();
    }
}
