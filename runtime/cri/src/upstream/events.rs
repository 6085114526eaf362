//! Both sides' events in one stream. A break of the upstream's part ends the stream with an error, so that
//! the client lists again. Otherwise it would miss events for good.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tonic::{Code, Request, Response, Status};

use super::link::{is_broken, reason, streaming};
use super::lists::RawStream;
use super::route::Call;
use super::sides::{Sides, copy};

/// How long an upstream has for a refusal. A silent one has no events yet.
const OPENS_WITHIN: Duration = Duration::from_secs(1);

impl Sides {
    /// # Errors
    /// An upstream without events refuses. The client then uses lists, and these have all pods.
    pub(super) async fn events(
        &self,
        call: &Call,
        request: Request<Bytes>,
    ) -> Result<Response<RawStream>, Status> {
        let mut state = self.upstream.link.state();
        let was_up = state.borrow_and_update().is_ok();
        // Ours first: it misses nothing while the upstream's opens.
        let ours = streaming(self.ours.clone(), &call.path, copy(&request)).await?;
        let (upstream, path) = (Arc::clone(&self.upstream), call.upstream_path.clone());
        let mut opening = async move { upstream.link.open(&path, request).await }.boxed();
        let theirs: RawStream = match tokio::time::timeout(OPENS_WITHIN, &mut opening).await {
            Ok(Ok(events)) => self.upstream_events(events),
            Ok(Err(status)) if status.code() == Code::Unimplemented => return Err(status),
            Ok(Err(status)) if was_up => {
                return Err(ended(&format!("the upstream runtime gives no events: {}", reason(&status))));
            }
            Ok(Err(_)) => Box::pin(stream::pending()),
            // It is silent: it opens with its first event.
            Err(_) => self.upstream_events(stream::once(opening).try_flatten()),
        };
        // Up or down: after a change the earlier event stream is no longer complete.
        let turned = stream::once(async move {
            let _ = state.wait_for(|state| state.is_ok() != was_up).await;
            Err(ended("the upstream runtime was gone or has come back"))
        });
        let ours = ours.map(Some).chain(stream::once(async { None }));
        let others = stream::select(theirs, turned).map(Some);
        // Our stream ends with the daemon.
        let both = stream::select(ours, others).take_while(|event| std::future::ready(event.is_some()));
        Ok(Response::new(until_error(both.filter_map(std::future::ready))))
    }

    /// The upstream's events, with an error at their end.
    fn upstream_events(
        &self,
        events: impl futures::Stream<Item = Result<Bytes, Status>> + Send + 'static,
    ) -> RawStream {
        let (upstream, noting) = (Arc::clone(&self.upstream), Arc::clone(&self.upstream));
        let broken = move |status: Status| {
            if is_broken(&status) {
                upstream.link.down(reason(&status));
            }
            ended("the upstream runtime's events broke off")
        };
        let events =
            events.map(move |event| event.inspect(|event| noting.note_event(event)).map_err(&broken));
        Box::pin(events.chain(ends("the upstream runtime has ended its events")))
    }
}

fn ended(why: &str) -> Status {
    Status::unavailable(format!("{why}: list anew, and ask again"))
}

fn ends(why: &'static str) -> impl futures::Stream<Item = Result<Bytes, Status>> {
    stream::once(async move { Err(ended(why)) })
}

/// The stream up to its first error.
fn until_error(events: impl futures::Stream<Item = Result<Bytes, Status>> + Send + 'static) -> RawStream {
    let ended = stream::unfold(Some(Box::pin(events)), |events| async {
        let mut events = events?;
        let event = events.next().await?;
        let goes_on = event.is_ok();
        Some((event, goes_on.then_some(events)))
    });
    Box::pin(ended)
}
