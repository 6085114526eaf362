//! Doors for `tests/fuzz`: a hostile client's bytes, through the readers alone and through whole sessions. Not for
//! others.
//!
//! A program (`program.rs`) says what the client sends, so that real frames with real header blocks come beside noise.

mod program;
mod session;

pub use session::{command_over_spdy, command_over_websocket, forward, tunnelled_forward};

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use futures::FutureExt;
use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncRead, ReadBuf};

use crate::channels::PIECE_BYTES;
use crate::command;
use crate::negotiate::{Framing, Purpose, negotiate};
use crate::resize::Sizes;
use crate::spdy::headers::{BLOCK_BYTES_MAX, HEADERS_MAX};
use crate::spdy::reader::{Event, Reader};
use program::Program;

/// A SPDY connection's bytes, in pieces and at once: both are the same events, and each is within its bounds.
pub fn spdy(input: &[u8]) {
    let Some((size, program)) = input.split_first() else { return };
    let wire = Program::new(program).spdy();
    let whole = events(Pieces { rest: &wire, size: usize::MAX });
    let pieces = events(Pieces { rest: &wire, size: usize::from(*size) + 1 });
    assert_eq!(whole, pieces);
}

/// What was read until the end or an error, which is the last; data of one frame in one piece.
fn events(wire: Pieces<'_>) -> (Vec<Event>, Option<String>) {
    let (length, mut data) = (wire.rest.len(), 0);
    let (mut reader, mut events) = (Reader::new(wire), Vec::new());
    loop {
        let event = match reader.next().now_or_never() {
            None => panic!("it waits, and all is there"),
            // An end within a data frame is told behind what was there of it.
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

/// A frame's pieces are as the bytes came, and so are no part of what is compared.
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

/// A connection that gives at most so many bytes at a time.
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

/// A terminal's sizes, in pieces that the first byte says: taken in pieces, they are the same at once.
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

/// A WebSocket message, in both of its framings.
pub fn message(bytes: &[u8]) {
    for base64 in [false, true] {
        let framing = Framing { json: true, base64, close: true };
        if let Some((channel, content)) = command::decode_message(bytes, framing) {
            assert!(content.len() < bytes.len() && (!base64 || channel <= 9));
        }
    }
}

/// A request's headers, a line each.
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

    /// The doors themselves: each is passed by bytes that mean nothing, and by some that do.
    #[tokio::test(start_paused = true)]
    async fn doors_open() {
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
