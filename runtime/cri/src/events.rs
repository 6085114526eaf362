//! GetContainerEvents: events of pods and containers from now on, until the client disconnects or the daemon
//! stops. A slow client gets an error. It then starts again with the lists.

use futures::stream::unfold;
use proto_cri::v1;
use runtime_pod::Events;
use tokio::sync::watch;

use crate::convert::event_out;
use crate::error::Failure;
use crate::serve::Cri;
use crate::stream::Streamed;

struct Listening {
    events: Events,
    stopping: watch::Receiver<bool>,
}

pub(crate) async fn events(
    cri: &Cri,
    _: v1::GetEventsRequest,
) -> Result<Streamed<v1::ContainerEventResponse>, Failure> {
    let listening = Listening { events: cri.pods.events(), stopping: cri.stopping.subscribe() };
    Ok(Box::pin(unfold(Some(listening), |listening| async {
        let mut listening = listening?;
        let event = tokio::select! {
            biased;
            _ = listening.stopping.wait_for(|stopping| *stopping) => return None,
            event = listening.events.next() => event?,
        };
        match event {
            Ok(event) => Some((Ok(event_out(&event)), Some(listening))),
            Err(missed) => Some((Err(Failure::from(missed).into()), None)),
        }
    })))
}
