//! Turns a fuzzer's bytes into a client's frames and messages, some of them valid. Nothing is checked here.

use bytes::BytesMut;

use crate::spdy::frame::Frame;
use crate::spdy::headers::Deflater;

/// Most bytes sent by a client. Longer inputs find nothing new.
const WIRE_BYTES_MAX: usize = 1 << 18;

const NAMES: [&str; 4] = ["streamtype", "port", "requestid", "Other"];
const KINDS: [&str; 8] = ["error", "stdin", "stdout", "stderr", "resize", "data", "", "nonsense"];
const PORTS: [&str; 4] = ["80", "81", "82", "0"];
const SIZES: [&str; 4] = [
    "{\"Width\":80,\"Height\":24}\n",
    "{\"Width\":0,\"Height\":1}{\"Width\":1,\"Height\":2}",
    "{\"Width\":",
    "100,\"Height\":30}",
];

/// The rest of a program not run yet. A program ends with its bytes.
#[derive(Debug)]
pub(super) struct Program<'a> {
    rest: &'a [u8],
}

impl<'a> Program<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Program<'a> {
        Program { rest: bytes }
    }

    /// Returns the next byte, 0 at the program's end.
    pub(super) fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *byte
    }

    /// Returns some of the program's bytes unchanged.
    fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.rest.len());
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        bytes
    }

    fn pick<const N: usize>(&mut self, texts: [&'static str; N]) -> &'static str {
        texts[usize::from(self.byte()) % N]
    }

    /// Returns a run of one byte. It is longer than all bounds of headers, but compresses well.
    fn run(&mut self) -> Vec<u8> {
        vec![b'x'; 1 << (self.byte() % 18)]
    }

    /// Returns a SPDY client's bytes.
    pub(super) fn spdy(mut self) -> Vec<u8> {
        let mut wire = BytesMut::new();
        let mut client = Client { deflater: Deflater::new().expect("a deflater"), next: 1 };
        while !self.rest.is_empty() && wire.len() < WIRE_BYTES_MAX {
            match client.frame(&mut self) {
                Ok(frame) => frame.put(&mut wire),
                Err(noise) => wire.extend_from_slice(&noise),
            }
        }
        wire.to_vec()
    }

    /// Returns a WebSocket client's bytes after the handshake.
    pub(super) fn websocket(mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        while !self.rest.is_empty() && wire.len() < WIRE_BYTES_MAX {
            let content = match self.byte() % 8 {
                0 => [&[0], self.bytes()].concat(),
                1 => [&[4], self.pick(SIZES).as_bytes()].concat(),
                2 => vec![255, self.byte() % 2],
                3 => [b"0", &b"aGVsbG8="[..usize::from(self.byte()) % 9]].concat(),
                4 => [vec![0], self.run()].concat(),
                _ => self.bytes().to_vec(),
            };
            match self.byte() {
                noise @ 250.. => wire.extend_from_slice(&[&[noise], &content[..]].concat()),
                kind => message(&mut wire, kind, &content),
            }
        }
        wire
    }

    /// Returns a SPDY client's bytes in WebSocket messages.
    pub(super) fn tunnelled(mut self) -> Vec<u8> {
        let size = 1 + 16 * usize::from(self.byte());
        let mut wire = Vec::new();
        for piece in self.spdy().chunks(size) {
            message(&mut wire, 0, piece);
        }
        wire
    }
}

/// A client with one context shared by its header blocks, as required.
struct Client {
    deflater: Deflater,
    next: u32,
}

impl Client {
    /// Returns the next frame, or bytes of no valid frame.
    fn frame(&mut self, program: &mut Program<'_>) -> Result<Frame, Vec<u8>> {
        // Usually the number of an open stream.
        let id = |program: &mut Program<'_>| u32::from(program.byte() % 16);
        Ok(match program.byte() % 12 {
            0..=2 => {
                let id = if program.byte() < 250 { self.next } else { id(program) };
                self.next = id + 2;
                Frame::SynStream { id, block: self.block(program)? }
            }
            3 | 4 => {
                let (id, fin) = (id(program), program.byte().is_multiple_of(4));
                Frame::Data { id, fin, bytes: program.bytes().to_vec().into() }
            }
            5 => Frame::Data { id: id(program), fin: false, bytes: program.pick(SIZES).into() },
            6 => Frame::Data { id: id(program), fin: false, bytes: program.run().into() },
            7 => Frame::Reset { id: id(program), status: u32::from(program.byte()) },
            8 => Frame::Ping(u32::from(program.byte())),
            9 => Frame::SynReply { id: id(program), block: self.block(program)? },
            10 => Frame::GoAway { last: id(program) },
            _ => return Err(program.bytes().to_vec()),
        })
    }

    fn block(&mut self, program: &mut Program<'_>) -> Result<Vec<u8>, Vec<u8>> {
        let long;
        let headers: Vec<_> = match program.byte() {
            // An exec's stream, and a port-forward's.
            0..=99 => vec![(NAMES[0], program.pick(KINDS))],
            100..=199 => {
                let (kind, port) = (program.pick(["error", "data"]), program.pick(PORTS));
                vec![(NAMES[0], kind), (NAMES[1], port), (NAMES[2], program.pick(PORTS))]
            }
            200..=219 => {
                long = String::from_utf8(program.run()).unwrap_or_default();
                vec![(program.pick(NAMES), long.as_str())]
            }
            220..=239 => vec![(program.pick(NAMES), ""); usize::from(program.byte())],
            _ => return Ok(program.bytes().to_vec()),
        };
        self.deflater.write(&headers).map_err(|_| Vec::new())
    }
}

/// Appends a masked frame with its correct length. Most values of `kind` make a whole message. The others
/// become the frame's first byte.
fn message(wire: &mut Vec<u8>, kind: u8, content: &[u8]) {
    const MASKED: u8 = 0x80;
    let opcode = match kind {
        0..=199 => 0x82,
        200..=219 => 0x81,
        220..=229 => 0x89,
        230..=234 => 0x88,
        _ => kind,
    };
    wire.push(opcode);
    match content.len() {
        length @ 0..126 => wire.push(MASKED | length as u8),
        length @ 126..0x1_0000 => {
            wire.push(MASKED | 126);
            wire.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            wire.push(MASKED | 127);
            wire.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    // A mask of zeros changes nothing.
    wire.extend_from_slice(&[0; 4]);
    wire.extend_from_slice(content);
}
