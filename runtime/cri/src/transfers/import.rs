//! Import: passes an archive on as it arrives, up to the final request. If the requests break off, the import
//! has failed, even if the bytes look complete.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use proto_images::v1::ImportRequest;
use proto_images::v1::import_request::Part;
use runtime_image::{Image, Images, Running};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::error::Failure;

/// Most pieces waiting for the disk: a few MiB.
const QUEUE: usize = 4;

/// Longest silence of a client. A program saving an image into the client's standard input may compute for a
/// while, but an import holds one of few places.
const SILENCE_MAX: Duration = Duration::from_secs(300);

pub(super) async fn import(
    images: &Images,
    mut requests: Streaming<ImportRequest>,
) -> Result<Running<Vec<Image>>, Status> {
    let silent = || Status::deadline_exceeded(format!("the client sent nothing for {SILENCE_MAX:?}"));
    let first = timeout(SILENCE_MAX, requests.message()).await.map_err(|_| silent())??;
    let Some(Part::Begin(begin)) = first.and_then(|request| request.part) else {
        return Err(Failure::invalid("the first request of an import does not begin it").into());
    };
    let (sender, input) = mpsc::channel(QUEUE);
    let name = Some(begin.name.as_str()).filter(|name| !name.is_empty());
    let running = images.begin_import(input, name).map_err(Failure::from)?;
    tokio::spawn(hand_on(requests, sender));
    Ok(running)
}

/// Passes pieces on until the import takes no more, or has all of them.
async fn hand_on(mut requests: Streaming<ImportRequest>, sender: mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let request = match timeout(SILENCE_MAX, requests.message()).await {
            Ok(Ok(Some(request))) => Ok(request.part),
            Ok(Ok(None)) => Err("the client ended before the archive".to_owned()),
            Ok(Err(status)) => Err(status.message().to_owned()),
            Err(_) => Err(format!("the client sent nothing for {SILENCE_MAX:?}")),
        };
        let piece = match request {
            Ok(Some(Part::End(_))) => return,
            Ok(Some(Part::Chunk(piece))) if !piece.is_empty() => Ok(Bytes::from(piece)),
            Ok(_) => Err(io::Error::other("a request of an import has no bytes")),
            Err(why) => Err(io::Error::other(why)),
        };
        let is_last = piece.is_err();
        if sender.send(piece).await.is_err() || is_last {
            return;
        }
    }
}
