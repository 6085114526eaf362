//! The deadline of a plugin's answer, and the outcome of a call.

use std::time::Duration;

use tokio::time::Instant;
use ttrpc::context::{self, Context};
use ttrpc::proto::Code;

use crate::name::short;

/// Why a plugin is dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("its connection broke: {0}")]
    Connection(String),
    #[error("its connection ended")]
    Ended,
    #[error("too many events waited for it")]
    Behind,
}

/// A plugin's answer; `Err` where it refused.
pub(crate) type Answer<A> = Result<A, String>;

/// Time limit for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(pub(crate) Duration);

impl Deadline {
    /// The call's context for the plugin, with the timeout.
    pub(crate) fn context(self) -> Context {
        context::with_duration(self.0)
    }

    /// Runs an RPC until it ends or its deadline passes. A status is the plugin's answer, whatever its code:
    /// a plugin whose own work was late refuses.
    pub(crate) async fn call<A>(
        self,
        rpc: impl Future<Output = ttrpc::Result<A>>,
    ) -> Result<Answer<A>, Broken> {
        let until = Instant::now() + self.0;
        let error = match tokio::time::timeout_at(until, rpc).await {
            Err(_) => return Err(Broken::Late(self.0)),
            Ok(Ok(answer)) => return Ok(Ok(answer)),
            Ok(Err(error)) => error,
        };
        // ttrpc knows the deadline at both ends. Its server may answer for a hanging plugin, but never before
        // the deadline.
        let is_late = Instant::now() >= until;
        match error {
            ttrpc::Error::RpcStatus(status) if !(is_late && status.code() == Code::DEADLINE_EXCEEDED) => {
                Ok(Err(short(&status.message)))
            }
            _ if is_late => Err(Broken::Late(self.0)),
            error => Err(Broken::Connection(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Deadline = Deadline(Duration::from_secs(2));

    async fn after(seconds: u64, error: ttrpc::Error) -> Result<Answer<()>, Broken> {
        let rpc = async {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Err(error)
        };
        DEADLINE.call(rpc).await
    }

    fn status(code: Code) -> ttrpc::Error {
        ttrpc::Error::RpcStatus(ttrpc::get_status(code, "why"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_is_the_plugins_refusal_even_if_its_own_work_was_late() {
        for code in [Code::UNKNOWN, Code::DEADLINE_EXCEEDED, Code::UNAVAILABLE] {
            assert_eq!(after(1, status(code)).await, Ok(Err("why".into())), "{code:?}");
        }
        assert_eq!(after(2, status(Code::UNKNOWN)).await, Ok(Err("why".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_passed_deadline_is_late_whoever_notices_it() {
        let of_ttrpc = ttrpc::Error::Others("Request deadline elapsed".into());
        let late = Err(Broken::Late(DEADLINE.0));
        assert_eq!(after(2, of_ttrpc).await, late);
        assert_eq!(after(2, status(Code::DEADLINE_EXCEEDED)).await, late);
        assert_eq!(after(3, status(Code::UNKNOWN)).await, late);
        assert!(matches!(after(1, ttrpc::Error::RemoteClosed).await, Err(Broken::Connection(_))));
    }
}
