//! Entry points for `tests/fuzz`: a hostile client's bytes go through the readers alone and through whole
//! sessions. No product code calls them.
//!
//! The fuzzer's bytes are a program (`program.rs`) for the client, so that real frames with real header
//! blocks occur among noise.

mod program;
mod session;

pub use session::{command_over_spdy, command_over_websocket, forward, tunnelled_forward};

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncRead, ReadBuf};

use crate::channel_message::{self, CHANNELS_MAX};
use crate::channels::PIECE_BYTES;
use crate::negotiate::{Purpose, negotiate};
use crate::resize::Sizes;
use crate::spdy::headers::{BLOCK_BYTES_MAX, HEADERS_MAX};
use crate::spdy::reader::{Event, Reader};
use program::Program;

/// Reads a SPDY connection's bytes both in pieces and at once. Both must give the same events, each within
/// its bounds.
pub fn spdy(input: &[u8]) {
    let Some((size, program)) = input.split_first() else { return };
    let wire = Program::new(program).spdy();
    let whole = events(Pieces { rest: &wire, size: usize::MAX });
    let pieces = events(Pieces { rest: &wire, size: usize::from(*size) + 1 });
    assert_eq!(whole, pieces);
}

/// Returns the events until the end, with the data of one frame in one piece, and the final error.
fn events(wire: Pieces<'_>) -> (Vec<Event>, Option<String>) {
    let (length, mut data) = (wire.rest.len(), 0);
    let (mut reader, mut events) = (Reader::new(wire), Vec::new());
    loop {
        let event = match reader.next().now_or_never() {
            None => panic!("the reader waits, though all bytes are there"),
            // An end within a data frame follows the frame's received part.
            Some(Err(error)) => return (events, Some(error.to_string())),
            Some(Ok(None)) => return (events, None),
            Some(Ok(Some(event))) => event,
        };
        match &event {
            Event::Data { bytes, .. } => {
                assert!(bytes.len() <= PIECE_BYTES);
                data += bytes.len();
                assert!(data <= length);
            }
            Event::Opened { id, headers, .. } => {
                assert!(!id.is_multiple_of(2) && headers.len() <= HEADERS_MAX);
                let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
                assert!(bytes <= BLOCK_BYTES_MAX);
            }
            _ => {}
        }
        join(&mut events, event);
    }
}

/// Appends an event, joined with the last one if both are data of one frame. The pieces of a frame depend on
/// the reads, and are not compared.
fn join(events: &mut Vec<Event>, event: Event) {
    if let (Some(Event::Data { id, bytes, fin: false }), Event::Data { id: same, bytes: more, fin }) =
        (events.last(), &event)
        && id == same
    {
        let mut whole = BytesMut::from(&bytes[..]);
        whole.extend_from_slice(more);
        let whole = Event::Data { id: *id, bytes: whole.freeze(), fin: *fin };
        events.pop();
        return events.push(whole);
    }
    events.push(event);
}

/// A connection giving at most `size` bytes at a time.
struct Pieces<'a> {
    rest: &'a [u8],
    size: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let count = self.size.min(self.rest.len()).min(buffer.remaining());
        let (piece, rest) = self.rest.split_at(count);
        buffer.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

/// Parses a terminal's sizes at once and in pieces. The first byte gives their length. Both must give the
/// same sizes.
pub fn sizes(input: &[u8]) {
    let Some((length, text)) = input.split_first() else { return };
    let (mut sizes, mut taken) = (Sizes::default(), Vec::new());
    for piece in text.chunks(usize::from(*length) + 1) {
        match sizes.push(piece) {
            Ok(more) => taken.extend(more),
            Err(_) => return,
        }
    }
    assert!(taken.iter().all(|size| size.columns > 0 && size.rows > 0));
    assert_eq!(Sizes::default().push(text), Ok(taken));
}

/// Decodes a WebSocket message in both framings.
pub fn message(bytes: &[u8]) {
    for base64 in [false, true] {
        if let Some((channel, content)) = channel_message::decode(Bytes::copy_from_slice(bytes), base64) {
            assert!(content.len() < bytes.len() && (!base64 || channel < CHANNELS_MAX));
        }
    }
}

/// Negotiates with a request's headers, given one on each line.
pub fn request(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n').take(100) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(&line[colon + 1..]));
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    for method in [Method::GET, Method::POST, Method::PUT] {
        for purpose in [Purpose::Command, Purpose::Forward] {
            match negotiate(&method, &headers, purpose) {
                Ok(agreed) => assert!(agreed.headers.len() >= 3),
                Err(refused) => assert!(refused.status.is_client_error() && !refused.text.is_empty()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the entry points without a fuzzer, on invalid bytes and on some valid ones.
    #[tokio::test(start_paused = true)]
    async fn every_entry_point_accepts_any_bytes() {
        let inputs = (0..60u8).map(|seed| {
            let mut state = u32::from(seed) + 1;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            };
            (0..usize::from(seed) * 5).map(|_| next()).collect::<Vec<u8>>()
        });
        for input in inputs {
            spdy(&input);
            sizes(&input);
            message(&input);
            request(&input);
            command_over_spdy(&input).await;
            command_over_websocket(&input).await;
            forward(&input).await;
            tunnelled_forward(&input).await;
        }
    }
}
