//! The bounded queue of a client's input on its way to the session. After the client has gone, the queue does
//! not wait for a session without progress. `disconnect.rs` detects the end of the client.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::channels::Input;
use crate::disconnect::DisconnectWatch;

/// How long a session may take to accept input after its client has closed: longer than a merely slow session
/// needs.
const GRACE: Duration = Duration::from_secs(2);

/// The sending side of the queue. Dropping it shows the session the end of its client.
pub(crate) struct InputQueue {
    pub(crate) queue: mpsc::Sender<Input>,
    pub(crate) disconnect: DisconnectWatch,
}

impl InputQueue {
    /// Queues one event. Returns false if the session did not take the event and the client has closed.
    pub(crate) async fn put(&self, input: Input) -> bool {
        let given_up = async {
            self.disconnect.wait().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            biased;
            // An ended command takes no more input. This does not end the session: its output is still on its
            // way.
            _ = self.queue.send(input) => true,
            () = given_up => false,
        }
    }
}
