//! Connections of a kubelet, made fit for h2. A kubelet sends the socket's path as the authority of its
//! requests, and h2 ends a stream with an invalid authority. All other bytes pass unchanged.
//!
//! HTTP/2: RFC 9113, section 4.1 (frames) and 6.2 (HEADERS). HPACK: RFC 7541, sections 5 and 6.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::UnixStream;

/// Bytes of a client's preface.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
/// Longest payload of a frame until a server allows more. This one does not.
const FRAME_MAX: usize = 16_384;
const HEADERS: u8 = 1;
/// HEADERS with other fields or incomplete: END_HEADERS missing, PADDED or PRIORITY set.
const END_HEADERS: u8 = 0x4;
const PADDED_OR_PRIORITY: u8 = 0x28;
/// `:authority` in the static table, and its replacement: a literal without compression.
const AUTHORITY: usize = 1;
const LOCALHOST: &[u8] = b"\x09localhost";

/// Takes a connection over; the returned end says the same with a valid authority.
pub(crate) fn relayed(client: UnixStream) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(2 * FRAME_MAX);
    tokio::spawn(async move {
        let (from_client, mut to_client) = client.into_split();
        let (mut from_server, to_server) = tokio::io::split(ours);
        // Either end ends both: a connection is of no use without its other direction.
        tokio::select! {
            _ = requests(from_client, to_server) => {}
            _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
        }
    });
    theirs
}

async fn requests(mut client: impl AsyncRead + Unpin, mut server: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut preface = [0; PREFACE];
    client.read_exact(&mut preface).await?;
    server.write_all(&preface).await?;
    loop {
        let mut header = [0; FRAME_HEADER];
        client.read_exact(&mut header).await?;
        let length = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
        if length > FRAME_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is longer than was allowed"));
        }
        let mut payload = vec![0; length];
        client.read_exact(&mut payload).await?;
        let alone = header[4] & END_HEADERS != 0 && header[4] & PADDED_OR_PRIORITY == 0;
        if header[3] == HEADERS && alone {
            if let Some(mended) = mended(&payload) {
                payload = mended;
            }
            let length = u32::try_from(payload.len()).map_err(io::Error::other)?.to_be_bytes();
            header[..3].copy_from_slice(&length[1..]);
        }
        server.write_all(&header).await?;
        server.write_all(&payload).await?;
    }
}

/// The fields with another authority; `None` if they have none in words, or are malformed. An authority in a
/// table was put there by earlier fields, already passed here.
fn mended(fields: &[u8]) -> Option<Vec<u8>> {
    let mut at = 0;
    while let Some(first) = fields.get(at) {
        let prefix = match first {
            0x80.. => 7,
            0x40.. => 6,
            0x20.. => 5,
            _ => 4,
        };
        let (index, mut next) = integer(fields, at, prefix)?;
        if prefix == 6 || prefix == 4 {
            if index == 0 {
                next = after_string(fields, next)?;
            }
            let end = after_string(fields, next)?;
            if index == AUTHORITY {
                return Some([fields.get(..next)?, LOCALHOST, fields.get(end..)?].concat());
            }
            next = end;
        }
        at = next;
    }
    None
}

/// An integer with a prefix of this many bits, and its end.
fn integer(fields: &[u8], at: usize, prefix: u32) -> Option<(usize, usize)> {
    let mask = (1_usize << prefix) - 1;
    let mut value = usize::from(*fields.get(at)?) & mask;
    let mut at = at + 1;
    if value < mask {
        return Some((value, at));
    }
    for shift in [0, 7, 14] {
        let byte = usize::from(*fields.get(at)?);
        at += 1;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, at));
        }
    }
    None
}

fn after_string(fields: &[u8], at: usize) -> Option<usize> {
    let (length, at) = integer(fields, at, 7)?;
    at.checked_add(length).filter(|end| *end <= fields.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_in_words_becomes_a_valid_one_and_all_else_stays() {
        // POST, a path as a new literal, the authority compressed, a field with its own name.
        let before = b"\x83\x86\x44\x02/a\x41\x83\xff\xff\xff\x40\x01n\x01v";
        let after = b"\x83\x86\x44\x02/a\x41\x09localhost\x40\x01n\x01v";
        assert_eq!(mended(before).unwrap(), after);
    }

    #[test]
    fn fields_without_it_and_fields_that_are_cut_short_are_left_alone() {
        for fields in [
            b"\x83\x86\xbe".as_slice(),
            b"",
            b"\x41",
            b"\x41\x7f",
            b"\x41\x05abc",
            b"\x40\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(mended(fields), None, "{fields:?}");
        }
    }

    #[tokio::test]
    async fn frames_pass_in_their_order_with_their_new_length() {
        let settings = b"\0\0\0\x04\0\0\0\0\0";
        let headers = b"\0\0\x05\x01\x04\0\0\0\x01\x83\x41\x02/a";
        let sent = [[b'P'; PREFACE].as_slice(), settings, headers].concat();
        let mut seen = Vec::new();
        // It ends as the client does, in the middle of nothing.
        let end = requests(sent.as_slice(), &mut seen).await.unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        let expected = b"\0\0\x0c\x01\x04\0\0\0\x01\x83\x41\x09localhost";
        assert_eq!(seen, [[b'P'; PREFACE].as_slice(), settings, expected].concat());
    }
}
