//! The deadline of a plugin's answer, and the outcome of a call.

use std::time::Duration;

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

    /// Runs an RPC until it ends or its deadline passes.
    pub(crate) async fn call<A>(
        self,
        rpc: impl Future<Output = ttrpc::Result<A>>,
    ) -> Result<Answer<A>, Broken> {
        match tokio::time::timeout(self.0, rpc).await {
            Err(_) => Err(Broken::Late(self.0)),
            Ok(Ok(answer)) => Ok(Ok(answer)),
            Ok(Err(ttrpc::Error::RpcStatus(status))) => match status.code() {
                Code::DEADLINE_EXCEEDED => Err(Broken::Late(self.0)),
                _ => Ok(Err(short(&status.message))),
            },
            Ok(Err(error)) => Err(Broken::Connection(error.to_string())),
        }
    }
}
