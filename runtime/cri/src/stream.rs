//! Lists sent in pieces: the list of a node with many pods may be larger than one message. Each item is in
//! exactly one piece, no piece is empty, and the stream ends after the last (api.proto,
//! `StreamPodSandboxes`).

use std::pin::Pin;

use prost::Message;
use tonic::codec::CompressionEncoding;

/// Longest message either way, in bytes, as allowed by the kubelet's client (cri-client `maxMsgSize`).
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The compression accepted for requests, the same as containerd's. Answers are not compressed: their way is
/// short.
pub(crate) const COMPRESSION: CompressionEncoding = CompressionEncoding::Gzip;

/// The answer of a streaming RPC.
pub(crate) type Streamed<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, tonic::Status>> + Send>>;

/// Size at which a piece is closed. It is far below [`MESSAGE_BYTES_MAX`], because a piece may end with an
/// item of some hundred KiB of annotations.
const PIECE_BYTES: usize = 1 << 20;

/// The items as messages of about [`PIECE_BYTES`] each.
pub(crate) fn in_pieces<I, T>(items: Vec<I>, message: impl Fn(Vec<I>) -> T + Send + 'static) -> Streamed<T>
where
    I: Message + 'static,
    T: 'static,
{
    Box::pin(tokio_stream::iter(cut(items, I::encoded_len).map(move |piece| Ok(message(piece)))))
}

/// The items in pieces of about [`PIECE_BYTES`] each, none of them empty.
pub(crate) fn cut<I>(items: Vec<I>, length: impl Fn(&I) -> usize) -> impl Iterator<Item = Vec<I>> {
    let mut items = items.into_iter().peekable();
    std::iter::from_fn(move || {
        items.peek()?;
        let (mut piece, mut bytes) = (Vec::new(), 0);
        while bytes < PIECE_BYTES
            && let Some(item) = items.next()
        {
            bytes += length(&item);
            piece.push(item);
        }
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proto_cri::v1;
    use tokio_stream::StreamExt;

    use super::*;

    fn image(number: usize, bytes: usize) -> v1::Image {
        v1::Image { id: format!("{number}"), repo_tags: vec!["x".repeat(bytes)], ..Default::default() }
    }

    async fn pieces(images: Vec<v1::Image>) -> Vec<Vec<String>> {
        let stream = in_pieces(images, |images| v1::StreamImagesResponse { images });
        let ids = stream.map(|piece| piece.unwrap().images.into_iter().map(|image| image.id).collect());
        ids.collect().await
    }

    #[tokio::test]
    async fn an_empty_list_is_a_stream_that_ends_at_once() {
        assert!(pieces(Vec::new()).await.is_empty());
    }

    #[tokio::test]
    async fn each_item_comes_once_in_order_and_no_piece_is_empty_or_too_large() {
        let large = (0..40).map(|number| image(number, 300 << 10)).collect();
        let pieces = pieces(large).await;
        assert!(pieces.len() > 1 && pieces.iter().all(|piece| (1..=4).contains(&piece.len())));
        let ids: Vec<_> = pieces.concat();
        assert_eq!(ids, (0..40).map(|number| number.to_string()).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn small_items_travel_together() {
        assert_eq!(pieces((0..100).map(|number| image(number, 10)).collect()).await.len(), 1);
    }
}
