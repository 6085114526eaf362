//! Feeds a client's input to a process. A process that does not read must not keep the session of a gone
//! client. A container with `stdinOnce` still gets the end of its input.
//!
//! ```text
//!   feeding ──the client goes, all is taken──▶ left, with the end of input
//!      ├── the client ends its input, and the process outlives it ──▶ heard, and feeding goes on
//!      └── the client goes, and nothing is taken for a while ──▶ left
//!            └── an input with an end: the rest, and then the end, as soon as the process reads
//! ```

use std::io;
use std::time::Duration;

use runtime_pod::ProcessInput;
use runtime_streaming::Input;
use tokio::sync::{mpsc, oneshot};

/// How long a process may take no input before the client's presence is checked, and how long after the
/// client has gone.
const STALLED: Duration = Duration::from_secs(2);

/// Where a client's input goes.
pub(crate) trait Target: Send + 'static {
    /// Passes an event on. Waits while the process does not take it.
    fn pass(&mut self, said: Input) -> impl Future<Output = io::Result<()>> + Send;

    /// Whether the client's end of input is the process's.
    fn ends(&self) -> bool;
}

impl Target for ProcessInput {
    async fn pass(&mut self, said: Input) -> io::Result<()> {
        match said {
            Input::Bytes(bytes) => self.write(&bytes).await,
            Input::Resize(size) => self.resize(size.columns, size.rows).await,
            Input::End => self.end().await,
        }
    }

    fn ends(&self) -> bool {
        ProcessInput::ends(self)
    }
}

/// Feeds input until the client has gone, and then drops `left`. If the process does not read, the rest is
/// lost, unless the end of input is the process's. Then this goes on until the process has read everything,
/// or has ended. The queue and the agent's limit of writers bound the rests of one process.
///
/// With `outlives` the process outlives its clients' input. Then an end of input is sent to `left`, once all
/// before it was taken.
pub(crate) async fn feed<T: Target>(
    mut target: Option<T>,
    outlives: bool,
    mut from_client: mpsc::Receiver<Input>,
    left: oneshot::Sender<()>,
) {
    let mut left = Some(left);
    while let Some(said) = from_client.recv().await {
        if outlives && said == Input::End {
            if let Some(left) = left.take() {
                // The session may have ended.
                let _ = left.send(());
            }
            continue;
        }
        let Some(process) = &mut target else { continue };
        let ends = process.ends();
        let taken = {
            let passing = process.pass(said);
            tokio::pin!(passing);
            tokio::select! {
                taken = &mut passing => taken,
                // The process is not reading now, so it would not take later input either.
                () = given_up(&from_client) => {
                    left = None;
                    if !ends {
                        return;
                    }
                    passing.await
                }
            }
        };
        if let Err(error) = taken {
            tracing::debug!(%error, "a process takes no more input");
            target = None;
        }
    }
    // A client that has gone sends no more input either.
    if let Some(process) = &mut target {
        let ending = process.pass(Input::End);
        tokio::pin!(ending);
        if tokio::time::timeout(STALLED, &mut ending).await.is_err() {
            left = None;
            let _ = ending.await;
        }
    }
    drop(left);
}

/// Waits until the client has gone, and a while longer: a slow process may still take the last input.
async fn given_up(from_client: &mpsc::Receiver<Input>) {
    loop {
        let gone = from_client.is_closed();
        tokio::time::sleep(STALLED).await;
        if gone {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;

    use super::*;

    /// A process that reads as many events as it has permits.
    #[derive(Clone)]
    struct Busy {
        ends: bool,
        reads: Arc<Semaphore>,
        heard: Arc<Mutex<Vec<Input>>>,
    }

    impl Target for Busy {
        async fn pass(&mut self, said: Input) -> io::Result<()> {
            self.reads.acquire().await.map_err(io::Error::other)?.forget();
            self.heard.lock().unwrap().push(said);
            Ok(())
        }

        fn ends(&self) -> bool {
            self.ends
        }
    }

    fn typed(text: &'static str) -> Input {
        Input::Bytes(text.as_bytes().into())
    }

    /// A busy process whose client types two words and goes, once the client has been given up.
    async fn left(ends: bool) -> (Busy, JoinHandle<()>) {
        let reads = Arc::new(Semaphore::new(0));
        let process = Busy { ends, reads, heard: Arc::default() };
        let (client, from_client) = mpsc::channel(4);
        let (leaves, left) = oneshot::channel();
        let feeding = tokio::spawn(feed(Some(process.clone()), !ends, from_client, leaves));
        for word in ["one", "two"] {
            client.send(typed(word)).await.unwrap();
        }
        drop(client);
        left.await.unwrap_err();
        (process, feeding)
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_process_that_ends_with_its_clients_input_gets_the_end_behind_the_rest() {
        let (process, feeding) = left(true).await;
        assert!(process.heard.lock().unwrap().is_empty());
        process.reads.add_permits(3);
        feeding.await.unwrap();
        assert_eq!(*process.heard.lock().unwrap(), [typed("one"), typed("two"), Input::End]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_process_that_outlives_its_clients_loses_the_rest() {
        let (process, feeding) = left(false).await;
        feeding.await.unwrap();
        process.reads.add_permits(3);
        assert!(process.heard.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn an_end_of_input_that_a_process_outlives_is_reported_behind_the_input() {
        let process = Busy { ends: false, reads: Arc::new(Semaphore::new(1)), heard: Arc::default() };
        let (client, from_client) = mpsc::channel(4);
        let (leaves, left) = oneshot::channel();
        let feeding = tokio::spawn(feed(Some(process.clone()), true, from_client, leaves));
        client.send(typed("one")).await.unwrap();
        client.send(Input::End).await.unwrap();
        left.await.unwrap();
        assert_eq!(*process.heard.lock().unwrap(), [typed("one")]);
        assert!(!feeding.is_finished(), "the client is still there");
        drop(client);
        process.reads.add_permits(1);
        feeding.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_for_a_busy_process_is_dropped_when_it_ends() {
        let (process, feeding) = left(true).await;
        process.reads.close();
        feeding.await.unwrap();
        assert!(process.heard.lock().unwrap().is_empty());
    }
}
