//! Both sides' events in one stream. A break of the upstream's part ends the stream with an error, so that
//! the client lists again. Otherwise it would miss events for good.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use tonic::{Code, Request, Response, Status};

use super::link::{is_broken, reason, streaming};
use super::lists::RawStream;
use super::route::Call;
use super::sides::{Sides, copy};

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
        let theirs: RawStream = match self.upstream.link.stream(&call.upstream_path, copy(&request)).await {
            Ok(events) => {
                let upstream = Arc::clone(&self.upstream);
                let broken = move |status: Status| {
                    if is_broken(&status) {
                        upstream.link.down(reason(&status));
                    }
                    ended("the upstream runtime's events broke off")
                };
                let noting = Arc::clone(&self.upstream);
                let events =
                    events.map(move |event| event.inspect(|event| noting.note_event(event)).map_err(&broken));
                Box::pin(events.chain(ends("the upstream runtime has ended its events")))
            }
            Err(status) if status.code() == Code::Unimplemented => return Err(status),
            Err(status) if was_up => {
                return Err(ended(&format!("the upstream runtime gives no events: {}", reason(&status))));
            }
            Err(_) => Box::pin(stream::pending()),
        };
        // Up or down: after a change the earlier event stream is no longer complete.
        let turned = stream::once(async move {
            let _ = state.wait_for(|state| state.is_ok() != was_up).await;
            Err(ended("the upstream runtime was gone or has come back"))
        });
        let ours = streaming(self.ours.clone(), &call.path, request).await?;
        let ours = ours.map(Some).chain(stream::once(async { None }));
        let others = stream::select(theirs, turned).map(Some);
        // Our stream ends with the daemon.
        let both = stream::select(ours, others).take_while(|event| std::future::ready(event.is_some()));
        Ok(Response::new(until_error(both.filter_map(std::future::ready))))
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
