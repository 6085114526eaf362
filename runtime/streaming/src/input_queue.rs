//! The bounded way of a client's input to its session. It never waits for a session that takes nothing once the
//! client has gone. `disconnect.rs` says how that is noticed.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::channels::Input;
use crate::disconnect::DisconnectWatch;

/// How long a session may go on to take what a client said that has closed since: longer than it takes one that
/// is only slow.
const GRACE: Duration = Duration::from_secs(2);

/// The way of a client's input to its session, which sees the client's end when this is gone.
pub(crate) struct InputQueue {
    pub(crate) queue: mpsc::Sender<Input>,
    pub(crate) disconnect: DisconnectWatch,
}

impl InputQueue {
    /// False where it was not taken and the client has closed.
    pub(crate) async fn put(&self, input: Input) -> bool {
        let given_up = async {
            self.disconnect.wait().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            biased;
            // A command that has ended takes no more, which is no reason to leave.
            _ = self.queue.send(input) => true,
            () = given_up => false,
        }
    }
}
