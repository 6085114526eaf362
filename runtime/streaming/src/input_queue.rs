//! The bounded queue of a client's input on its way to the session. Once the client has gone, the queue does not wait
//! for a session that takes nothing; `disconnect.rs` notices that.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::channels::Input;
use crate::disconnect::DisconnectWatch;

/// How long a session may take to accept input of a client that has closed since: longer than a session needs that is
/// only slow.
const GRACE: Duration = Duration::from_secs(2);

/// The sending side of the queue. The session sees that its client has gone when this is dropped.
pub(crate) struct InputQueue {
    pub(crate) queue: mpsc::Sender<Input>,
    pub(crate) disconnect: DisconnectWatch,
}

impl InputQueue {
    /// Queues one event. Returns false where the session did not take the event and the client has closed.
    pub(crate) async fn put(&self, input: Input) -> bool {
        let given_up = async {
            self.disconnect.wait().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            biased;
            // A command that has ended takes no more, which does not end the session: its output is still on its way.
            _ = self.queue.send(input) => true,
            () = given_up => false,
        }
    }
}
