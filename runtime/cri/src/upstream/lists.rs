//! Lists with both sides' items, in one answer or as a stream. An encoded list is its items one after
//! another, so two lists are joined by their bytes (protobuf's encoding: a repeated field may come in
//! pieces).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use tonic::{Code, Request, Response, Status};
use tracing::warn;

use super::fields;
use super::images;
use super::known::{Known, checked};
use super::link::{ANSWERS_WITHIN, FIGURES_WITHIN, is_out_of_time, reason, streaming, unary};
use super::metrics;
use super::route::{Call, Listed};
use super::sides::{Sides, copy};
use crate::stream::MESSAGE_BYTES_MAX;

/// The answers of a streaming RPC, encoded.
pub(super) type RawStream = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

impl Sides {
    /// Lists in one answer.
    pub(super) async fn list(
        &self,
        call: &Call,
        listed: Listed,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        let ours = unary(self.ours.clone(), &call.path, copy(&request)).await?;
        let theirs = self.theirs(&call.upstream_path, listed, request).await?;
        if listed == Listed::Metrics {
            let labels = self.labels().await;
            return Ok(ours.map(|ours| joined(listed, &labels.of_ours(ours), &labels.of_theirs(theirs))));
        }
        Ok(ours.map(|ours| joined(listed, &ours, &theirs)))
    }

    /// The upstream's items, or its last ones if it does not answer.
    ///
    /// # Errors
    /// The upstream runs the node's pods and has no metrics. The error makes a client look elsewhere for
    /// them. A list without them would mean that they have none.
    async fn theirs(&self, path: &str, listed: Listed, request: Request<Bytes>) -> Result<Bytes, Status> {
        let upstream = &self.upstream;
        let message = request.get_ref().clone();
        if !upstream.link.is_up() {
            return Ok(upstream.known.filtered(listed, &message));
        }
        let asked = Instant::now();
        let bound = if listed.is_figures() { FIGURES_WITHIN } else { ANSWERS_WITHIN };
        let answer = match upstream.link.fetch_within(bound, path, request).await {
            // An older upstream without this data.
            Err(status) if status.code() == Code::Unimplemented => {
                return if path.contains("Metric") && upstream.takes("", false) {
                    Err(status)
                } else {
                    Ok(Bytes::new())
                };
            }
            Err(status) if is_out_of_time(&status) => return Ok(upstream.known.filtered(listed, &message)),
            Err(status) => Err(reason(&status)),
            Ok(answer) => checked(listed, answer),
        };
        Ok(match answer {
            Ok(list) => {
                if has_no_filter(&message) {
                    upstream.known.remember(listed, &list, asked);
                }
                list
            }
            Err(why) => {
                warn!(path, why, "the upstream runtime gives no list; it is taken as last seen");
                upstream.known.filtered(listed, &message)
            }
        })
    }

    /// Lists as a stream: our items, then the upstream's.
    pub(super) async fn stream(
        &self,
        call: &Call,
        listed: Listed,
        unary_rpc: &str,
        request: Request<Bytes>,
    ) -> Result<Response<RawStream>, Status> {
        let ours = streaming(self.ours.clone(), &call.path, copy(&request)).await?;
        let asked = Instant::now();
        let opened = self.upstream.link.stream(&call.upstream_path, copy(&request)).await;
        let theirs: RawStream = match opened {
            Ok(pieces) if has_no_filter(request.get_ref()) => {
                remembered(Arc::clone(&self.upstream.known), listed, asked, Box::pin(pieces))
            }
            Ok(pieces) => Box::pin(pieces),
            // Down, or an upstream with lists only in one answer.
            Err(_) => {
                let list = self.theirs(&call.upstream_path_of(unary_rpc), listed, request).await?;
                Box::pin(stream::iter((!list.is_empty()).then_some(Ok(list))))
            }
        };
        if listed == Listed::Images {
            return Ok(Response::new(images_in_pieces(ours, theirs).await?));
        }
        if listed == Listed::Metrics {
            let labels = Arc::new(self.labels().await);
            let of_theirs = Arc::clone(&labels);
            let ours = ours.map(move |piece| piece.map(|piece| labels.of_ours(piece)));
            let theirs = theirs.map(move |piece| piece.map(|piece| of_theirs.of_theirs(piece)));
            return Ok(Response::new(Box::pin(ours.chain(theirs))));
        }
        Ok(Response::new(Box::pin(ours.chain(theirs))))
    }
}

/// Remembers the whole list at its regular end. One too long for a single answer is not remembered.
fn remembered(known: Arc<Known>, listed: Listed, asked: Instant, pieces: RawStream) -> RawStream {
    let start = (pieces, Some(Vec::<u8>::new()));
    Box::pin(stream::unfold(start, move |(mut pieces, mut list)| {
        let known = Arc::clone(&known);
        async move {
            let Some(piece) = pieces.next().await else {
                let list = list.and_then(|list| checked(listed, list.into()).ok());
                list.inspect(|list| known.remember(listed, list, asked));
                return None;
            };
            list = match (&piece, list) {
                (Ok(piece), Some(mut list)) if list.len() + piece.len() <= MESSAGE_BYTES_MAX => {
                    list.extend_from_slice(piece);
                    Some(list)
                }
                _ => None,
            };
            Some((piece, (pieces, list)))
        }
    }))
}

/// Both sides' images. An image on both sides is one item, so all must arrive first.
async fn images_in_pieces(
    ours: impl Stream<Item = Result<Bytes, Status>> + Send + 'static,
    theirs: RawStream,
) -> Result<RawStream, Status> {
    let whole = async |mut pieces: RawStream| {
        let mut list = Vec::new();
        while let Some(piece) = pieces.next().await {
            list.extend_from_slice(&piece?);
        }
        Ok::<_, Status>(Bytes::from(list))
    };
    let joined = images::joined(&whole(Box::pin(ours)).await?, &whole(theirs).await?);
    let items = fields::items(&joined).map_err(Status::internal)?;
    let items: Vec<_> = items.into_iter().map(|(whole, _)| whole).collect();
    Ok(Box::pin(stream::iter(crate::stream::cut(items, Bytes::len)).map(|piece| Ok(piece.concat().into()))))
}

fn joined(listed: Listed, ours: &Bytes, theirs: &Bytes) -> Bytes {
    match listed {
        Listed::Images => images::joined(ours, theirs),
        Listed::Descriptors => metrics::joined(ours, theirs),
        Listed::Pods
        | Listed::Containers
        | Listed::Figures
        | Listed::Metrics
        | Listed::RuntimeConfig
        | Listed::Features => [&ours[..], &theirs[..]].concat().into(),
    }
}

/// Returns true if a request for a list has no filter. The filter is field 1.
fn has_no_filter(request: &Bytes) -> bool {
    fields::items(request).is_ok_and(|filters| filters.iter().all(|(_, filter)| filter.is_empty()))
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use proto_cri::v1;

    use super::*;

    #[test]
    fn lists_are_joined_by_their_bytes() {
        let list = |id: &str| {
            let items = vec![v1::PodSandbox { id: id.into(), ..Default::default() }];
            Bytes::from(v1::ListPodSandboxResponse { items, ..Default::default() }.encode_to_vec())
        };
        let both = joined(Listed::Pods, &list("a"), &list("b"));
        let ids: Vec<_> =
            v1::ListPodSandboxResponse::decode(both).unwrap().items.into_iter().map(|pod| pod.id).collect();
        assert_eq!(ids, ["a", "b"]);
    }

    #[test]
    fn an_empty_filter_asks_for_everything() {
        let request = |filter| Bytes::from(v1::ListPodSandboxRequest { filter }.encode_to_vec());
        assert!(
            has_no_filter(&request(None)) && has_no_filter(&request(Some(v1::PodSandboxFilter::default())))
        );
        let filter = v1::PodSandboxFilter { id: "a".into(), ..Default::default() };
        assert!(!has_no_filter(&request(Some(filter))));
    }
}
