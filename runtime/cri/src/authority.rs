//! A client's connection, changed so that the HTTP library accepts the authority of each call.
//!
//! Clients send the path of a unix socket as the authority. gRPC's C core, and with it Python, C++, Ruby and
//! PHP, percent-encodes the path. So do some years' versions of grpc-go with a custom dialer; older ones send
//! it unchanged. URIs may have percent signs there (RFC 3986, section 3.2.2), but the library resets each
//! such call. On a unix socket the authority is not used. So this module replaces both signs while the bytes
//! pass. The length stays, and with it the size of HPACK's table (RFC 7541).
//!
//! A value may be in Huffman's code (appendix B), as from Go. Then signs of six bits become other signs of
//! six bits. Only one bit is set, at the moment it is read, because the bytes before it have passed already.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// Bytes of the client's preface (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;
const FRAME_HEAD_BYTES: usize = 9;

// Frame types and flags, RFC 9113, section 6.
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;

/// Index of `:authority` in HPACK's static table (RFC 7541, appendix A).
const AUTHORITY: usize = 1;

/// The name itself, as written by the C core, and in Huffman's code.
const NAME: &[u8] = b":authority";
const NAME_IN_CODE: &[u8] = &[0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f];
/// Longest integer handled. The library refuses longer header blocks anyway.
const SHIFT_MAX: u32 = 21;

/// A connection with its authorities replaced.
#[derive(Debug)]
pub(crate) struct Mended<S> {
    connection: S,
    frames: Frames,
}

impl<S> Mended<S> {
    pub(crate) fn new(connection: S) -> Mended<S> {
        Mended { connection, frames: Frames::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Mended<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.connection).poll_read(context, buffer);
        this.frames.mend(&mut buffer.filled_mut()[before..]);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Mended<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }
}

impl<S: Connected> Connected for Mended<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.connection.connect_info()
    }
}

/// The position in a client's frames.
#[derive(Debug)]
struct Frames {
    preface_left: usize,
    head: [u8; FRAME_HEAD_BYTES],
    head_bytes: usize,
    frame: Frame,
    block: Block,
}

/// The rest of a frame, in the order of arrival.
#[derive(Debug, Default)]
struct Frame {
    has_pad_length: bool,
    skipped: usize,
    block: usize,
    padding: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Frames {
            preface_left: PREFACE_BYTES,
            head: [0; FRAME_HEAD_BYTES],
            head_bytes: 0,
            frame: Frame::default(),
            block: Block::default(),
        }
    }
}

impl Frames {
    fn mend(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let taken = self.take(bytes);
            bytes = &mut bytes[taken..];
        }
    }

    /// Processes some of the bytes, at least one, and returns their number.
    fn take(&mut self, bytes: &mut [u8]) -> usize {
        let frame = &mut self.frame;
        if self.preface_left > 0 {
            return run(&mut self.preface_left, bytes);
        }
        if frame.has_pad_length {
            frame.has_pad_length = false;
            frame.padding = usize::from(bytes[0]).min(frame.block);
            frame.block -= frame.padding;
            return 1;
        }
        if frame.skipped > 0 {
            return run(&mut frame.skipped, bytes);
        }
        if frame.block > 0 {
            let taken = run(&mut frame.block, bytes);
            bytes[..taken].iter_mut().for_each(|byte| self.block.take(byte));
            return taken;
        }
        if frame.padding > 0 {
            return run(&mut frame.padding, bytes);
        }
        self.head[self.head_bytes] = bytes[0];
        self.head_bytes += 1;
        if self.head_bytes == FRAME_HEAD_BYTES {
            self.head_bytes = 0;
            self.frame = Frame::of(&self.head);
        }
        1
    }
}

/// Consumes the remaining bytes, as far as they are available. Returns their number.
fn run(left: &mut usize, bytes: &[u8]) -> usize {
    let taken = (*left).min(bytes.len());
    *left -= taken;
    taken
}

impl Frame {
    fn of(head: &[u8; FRAME_HEAD_BYTES]) -> Frame {
        let [high, middle, low, kind, flags, ..] = *head;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let has = |flag: u8| kind == HEADERS && flags & flag != 0;
        if !matches!(kind, HEADERS | CONTINUATION) {
            return Frame { skipped: length, ..Frame::default() };
        }
        let has_pad_length = has(PADDED) && length > 0;
        let rest = length - usize::from(has_pad_length);
        let skipped = if has(PRIORITY) { PRIORITY_BYTES.min(rest) } else { 0 };
        Frame { has_pad_length, skipped, block: rest - skipped, padding: 0 }
    }
}

/// The position in a header block.
#[derive(Debug, Default)]
struct Block {
    at: At,
    /// An unfinished integer: its value so far, and the place of the next bits.
    integer: Option<(usize, u32)>,
    is_literal: bool,
    is_authority: bool,
    is_huffman: bool,
    /// The name to compare a new one with.
    name: &'static [u8],
    code: Code,
}

#[derive(Clone, Copy, Debug, Default)]
enum At {
    #[default]
    Field,
    NameLength,
    Name(usize),
    ValueLength,
    Value(usize),
    /// The rest is not understood, and stays unchanged.
    Lost,
}

impl Block {
    fn take(&mut self, byte: &mut u8) {
        if let Some((value, shift)) = self.integer {
            let value = value + (usize::from(*byte & 0x7f) << shift);
            if *byte & 0x80 == 0 {
                self.number(value);
            } else if shift < SHIFT_MAX {
                self.integer = Some((value, shift + 7));
            } else {
                self.at = At::Lost;
                self.integer = None;
            }
            return;
        }
        match self.at {
            At::Field => {
                let bits = match *byte {
                    byte if byte & 0x80 != 0 => 7,
                    byte if byte & 0x40 != 0 => 6,
                    byte if byte & 0x20 != 0 => 5,
                    _ => 4,
                };
                self.is_literal = matches!(bits, 6 | 4);
                self.begin(*byte, bits);
            }
            At::NameLength | At::ValueLength => {
                self.is_huffman = *byte & 0x80 != 0;
                self.begin(*byte, 7);
            }
            At::Name(left) => {
                let place = self.name.len().wrapping_sub(left);
                self.is_authority &= self.name.get(place) == Some(&*byte);
                self.at = if left > 1 { At::Name(left - 1) } else { At::ValueLength };
            }
            At::Value(left) => {
                match (self.is_authority, self.is_huffman) {
                    (true, true) => self.code.mend(byte),
                    (true, false) if matches!(*byte, b'%' | b'/') => *byte = b'-',
                    _ => {}
                }
                self.at = if left > 1 { At::Value(left - 1) } else { At::Field };
            }
            At::Lost => {}
        }
    }

    /// Begins an integer in the low bits of a byte (RFC 7541, section 5.1).
    fn begin(&mut self, byte: u8, bits: u32) {
        let mask = (1 << bits) - 1;
        let value = usize::from(byte) & mask;
        if value < mask { self.number(value) } else { self.integer = Some((value, 0)) }
    }

    /// Handles a complete integer: an index or a length.
    fn number(&mut self, value: usize) {
        self.integer = None;
        self.at = match self.at {
            At::Field if !self.is_literal => At::Field,
            At::Field => {
                self.is_authority = value == AUTHORITY;
                if value == 0 { At::NameLength } else { At::ValueLength }
            }
            At::NameLength if value > 0 => {
                self.name = if self.is_huffman { NAME_IN_CODE } else { NAME };
                self.is_authority = self.name.len() == value;
                At::Name(value)
            }
            At::NameLength => At::ValueLength,
            At::ValueLength if value > 0 => {
                self.code = Code::default();
                At::Value(value)
            }
            At::ValueLength => At::Field,
            other => other,
        };
    }
}

/// The position in a value in Huffman's code.
#[derive(Debug, Default, Clone, Copy)]
struct Code {
    /// Bits of the current letter, and their number.
    bits: u16,
    count: u32,
    /// A letter had more than eight bits. Paths have none.
    is_lost: bool,
}

impl Code {
    fn mend(&mut self, byte: &mut u8) {
        for place in (0..8).rev() {
            if self.is_lost {
                return;
            }
            let bit = 1 << place;
            self.bits = self.bits << 1 | u16::from(*byte & bit != 0);
            self.count += 1;
            // Either the beginning of a space (010100) or of a percent sign (010101): these become "-"
            // (010110) and "." (010111). Or a slash (011000): it becomes "3" (011001).
            if matches!((self.count, self.bits), (5, 0b01010) | (6, 0b01_1000)) {
                *byte |= bit;
                self.bits |= 1;
            }
            // The codes of each length are consecutive.
            match (self.count, self.bits) {
                (5, 0..=9) | (6, 20..=45) | (7, 92..=122) | (8, 248..=253) => {
                    (self.bits, self.count) = (0, 0);
                }
                (9.., _) => self.is_lost = true,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &[u8] = b"%2Frun%2Fpodvisor%2Fpodvisor.sock";

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// A header block: an indexed field, the authority, and a field with a new name and a percent sign in its
    /// value.
    fn block(authority: &[u8]) -> Vec<u8> {
        let length = u8::try_from(authority.len()).unwrap();
        [&[0x83, 0x41, length], authority, &[0x40, 1, b'a', 2, b'%', b'b']].concat()
    }

    fn stream(frames: &[Vec<u8>]) -> Vec<u8> {
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frames.concat()].concat()
    }

    /// The stream after the replacement, in pieces of this size.
    fn mended(mut stream: Vec<u8>, piece: usize) -> Vec<u8> {
        let mut frames = Frames::default();
        stream.chunks_mut(piece).for_each(|piece| frames.mend(piece));
        stream
    }

    fn from_hex(text: &str) -> Vec<u8> {
        let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digits).collect()
    }

    fn plain() -> Vec<u8> {
        PATH.iter().map(|&byte| if byte == b'%' { b'-' } else { byte }).collect()
    }

    #[test]
    fn percent_signs_of_the_authority_go_and_nothing_else_changes() {
        let settings = frame(4, 0, &[]);
        let data = frame(0, 1, b"100 %");
        let padded = |authority: &[u8]| {
            let payload = [&[3], &[0; PRIORITY_BYTES][..], &block(authority), b"%%%"].concat();
            frame(HEADERS, PADDED | PRIORITY, &payload)
        };
        let of = |authority: &[u8]| {
            let continued = block(authority);
            let (first, rest) = continued.split_at(7);
            stream(&[
                settings.clone(),
                frame(HEADERS, 4, &block(authority)),
                data.clone(),
                padded(authority),
                frame(HEADERS, 0, first),
                frame(CONTINUATION, 4, rest),
            ])
        };
        for piece in [1, 2, 3, 7, 1000] {
            assert_eq!(mended(of(PATH), piece), of(&plain()), "pieces of {piece}");
        }
    }

    #[test]
    fn the_name_may_be_written_out() {
        let named = |name: &[u8], code: u8, authority: &[u8]| {
            let length = |text: &[u8]| u8::try_from(text.len()).unwrap();
            let block =
                [&[0x40, code | length(name)], name, &[length(authority)], authority, b"\x40\x01a\x02%b"];
            stream(&[frame(HEADERS, 4, &block.concat())])
        };
        for piece in [1, 3, 1000] {
            for (name, code) in [(NAME, 0), (NAME_IN_CODE, 0x80)] {
                assert_eq!(mended(named(name, code, PATH), piece), named(name, code, &plain()));
            }
            for (other, code) in [(&b":authoritx"[..], 0), (b":authority2", 0), (b":auth", 0), (NAME, 0x80)] {
                assert_eq!(mended(named(other, code, PATH), piece), named(other, code, PATH));
            }
        }
    }

    #[test]
    fn a_path_as_it_is_becomes_a_name() {
        let of = |authority: &[u8]| stream(&[frame(HEADERS, 4, &block(authority))]);
        assert_eq!(mended(of(b"/run/x.sock"), 4), of(b"-run-x.sock"));
    }

    #[test]
    fn what_go_writes_in_huffmans_code_becomes_another_text_of_that_code() {
        // From Go's `hpack`: the authority, and the same with "." for "%" and "3" for "/".
        for (sent, wanted) in [
            // "/run/podvisor/podvisor.sock"
            ("62cb6a62b3c9dcc83d8c56793b9907b1741c9d7f", "66cb6a66b3c9dcc83d8cd6793b9907b1741c9d7f"),
            // "%2Frun%2Fpodvisor%2Fpodvisor.sock"
            (
                "54586cb6a54586b3c9dcc83d8a8b0d6793b9907b1741c9d7",
                "5c586cb6a5c586b3c9dcc83d8b8b0d6793b9907b1741c9d7",
            ),
            ("a0e41d139d09", "a0e41d139d09"),         // "localhost"
            ("54401b11c44b8157", "5c401b31c44b815f"), // "%20a/b_c:1%"
            ("607ffb8d827f", "647ffb8d827f"),         // "/a[b/c": unchanged after the bracket
        ] {
            let of = |value: &str| {
                let value = from_hex(value);
                let block =
                    [&[0x83, 0x41, 0x80 | u8::try_from(value.len()).unwrap()], &value[..], &[0x41, 2], b"%/"];
                stream(&[frame(HEADERS, 4, &block.concat()), frame(0, 1, &value)])
            };
            let then = |mut bytes: Vec<u8>| {
                // A later value is replaced like plain bytes.
                let at = bytes.windows(2).position(|two| two == b"%/").unwrap();
                bytes[at..at + 2].copy_from_slice(b"--");
                bytes
            };
            let data = of(sent).len() - from_hex(sent).len();
            let expected = [&then(of(wanted))[..data], &from_hex(sent)].concat();
            for piece in [1, 2, 3, 5, 1000] {
                assert_eq!(mended(of(sent), piece), expected, "{sent} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn what_is_not_understood_stays() {
        let endless = [&[0x41, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff][..], b"%%%"].concat();
        let sent = stream(&[frame(HEADERS, 4, &endless)]);
        assert_eq!(mended(sent.clone(), 5), sent);
    }

    #[test]
    fn long_lengths_are_followed() {
        let authority = [PATH, &[b'x'; 200]].concat();
        // 233 is 127 and 106.
        let of = |authority: &[u8]| {
            let payload = [&[0x41, 0x7f, 106], authority, &[0x83]].concat();
            let mut framed = vec![0, 0, u8::try_from(payload.len()).unwrap(), HEADERS, 4, 0, 0, 0, 1];
            framed.extend(payload);
            stream(&[framed])
        };
        let wanted = [&plain()[..], &[b'x'; 200]].concat();
        assert_eq!(mended(of(&authority), 9), of(&wanted));
    }
}
