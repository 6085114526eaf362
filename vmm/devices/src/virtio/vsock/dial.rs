//! Host programs connected to the listener, before their request is complete.
//!
//! This module owns the pending dials and their one line: `CONNECT <port>\n` for a port of the guest, or
//! `ACCEPT <number>\n` for a stream opened by the guest. Exactly this line is taken off the stream. The rest
//! belongs to the connection.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};

/// Most bytes of the line, including its newline.
const LINE_BYTES_MAX: usize = 32;

/// Most pending dials kept. One more replaces the oldest.
const DIALS_MAX: usize = 64;

/// The reserved number for no port (VMADDR_PORT_ANY).
const PORT_ANY: u32 = u32::MAX;

/// A dialler's bytes so far.
#[derive(Debug)]
pub(super) enum Said {
    /// Incomplete; the next bytes raise an event.
    Nothing,
    /// A complete request.
    Wanted(Wanted),
    /// Anything else, or the dialler has left.
    Nonsense,
}

/// A dialler's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A stream to this port of the guest.
    Connect(u32),
    /// The guest's stream with this number.
    Accept(u64),
}

/// See the module. Ids ascend with age.
#[derive(Debug, Default)]
pub(super) struct Dials {
    streams: BTreeMap<u64, UnixStream>,
}

impl Dials {
    /// Keeps a dialler until its line is complete.
    pub(super) fn insert(&mut self, id: u64, stream: UnixStream) {
        self.streams.insert(id, stream);
        if self.streams.len() > DIALS_MAX {
            self.streams.pop_first();
        }
    }

    /// Reads on for `id`. Returns its stream and its request, once the line is complete. A dialler with an
    /// invalid line is closed.
    pub(super) fn proceed(&mut self, id: u64) -> Option<(UnixStream, Wanted)> {
        let said = take_line(self.streams.get(&id)?);
        match said {
            Said::Nothing => None,
            Said::Wanted(wanted) => self.streams.remove(&id).map(|stream| (stream, wanted)),
            Said::Nonsense => {
                self.streams.remove(&id);
                None
            }
        }
    }
}

/// Takes the line off `stream`, if it is complete.
fn take_line(stream: &UnixStream) -> Said {
    let mut bytes = [0; LINE_BYTES_MAX];
    let there = match receive(stream, &mut bytes, MsgFlags::MSG_PEEK) {
        Ok(0) => return Said::Nonsense,
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Said::Nothing,
        Err(_) => return Said::Nonsense,
    };
    let Some(end) = bytes[..there].iter().position(|&byte| byte == b'\n') else {
        return if there == LINE_BYTES_MAX { Said::Nonsense } else { Said::Nothing };
    };
    let mut line = [0; LINE_BYTES_MAX];
    match (receive(stream, &mut line[..=end], MsgFlags::empty()), parse_line(&bytes[..end])) {
        (Ok(taken), Some(wanted)) if taken == end + 1 => Said::Wanted(wanted),
        _ => Said::Nonsense,
    }
}

fn receive(stream: &UnixStream, bytes: &mut [u8], flags: MsgFlags) -> io::Result<usize> {
    loop {
        match recv(stream.as_raw_fd(), bytes, flags | MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EINTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Parses a line without its newline.
fn parse_line(line: &[u8]) -> Option<Wanted> {
    if let Some(digits) = line.strip_prefix(b"CONNECT ") {
        let port = parse_number(digits)?;
        return (port != PORT_ANY).then_some(Wanted::Connect(port));
    }
    parse_number(line.strip_prefix(b"ACCEPT ")?).map(Wanted::Accept)
}

/// Parses a number of decimal digits only.
fn parse_number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_line_is_connect_or_accept_and_a_decimal_number() {
        assert_eq!(parse_line(b"CONNECT 1024"), Some(Wanted::Connect(1024)));
        assert_eq!(parse_line(b"CONNECT 0"), Some(Wanted::Connect(0)));
        assert_eq!(parse_line(b"ACCEPT 16"), Some(Wanted::Accept(16)));
        let longest = format!("ACCEPT {}\n", u64::MAX);
        assert!(longest.len() <= LINE_BYTES_MAX);
        assert_eq!(parse_line(longest.trim_end().as_bytes()), Some(Wanted::Accept(u64::MAX)));
        let refused: [&[u8]; 12] = [
            b"ACCEPT ",
            b"ACCEPT -1",
            b"ACCEPT 18446744073709551616",
            b"CONNECT",
            b"CONNECT ",
            b"CONNECT +1",
            b"CONNECT -1",
            b"CONNECT 1 ",
            b"connect 1",
            b"CONNECT 4294967295",
            b"CONNECT 4294967296",
            b"CONNECT 0x10",
        ];
        for line in refused {
            assert_eq!(parse_line(line), None, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn a_line_in_pieces_is_waited_for_and_what_follows_stays() {
        let (mut host, ours) = UnixStream::pair().unwrap();
        let mut dials = Dials::default();
        dials.insert(1, ours);
        assert!(dials.proceed(1).is_none());
        host.write_all(b"CONN").unwrap();
        assert!(dials.proceed(1).is_none());
        host.write_all(b"ECT 77\nbody").unwrap();
        let (mut stream, wanted) = dials.proceed(1).unwrap();
        assert_eq!(wanted, Wanted::Connect(77));
        let mut rest = [0; 4];
        stream.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"body");
        assert!(dials.proceed(1).is_none());
    }

    #[test]
    fn an_endless_line_is_hung_up_on() {
        let (mut host, ours) = UnixStream::pair().unwrap();
        let mut dials = Dials::default();
        dials.insert(1, ours);
        host.write_all(&[b'C'; LINE_BYTES_MAX]).unwrap();
        assert!(dials.proceed(1).is_none());
        assert!(dials.streams.is_empty());
    }

    #[test]
    fn a_dialler_that_leaves_is_forgotten() {
        let (host, ours) = UnixStream::pair().unwrap();
        let mut dials = Dials::default();
        dials.insert(1, ours);
        drop(host);
        assert!(dials.proceed(1).is_none());
        assert!(dials.streams.is_empty());
    }

    #[test]
    fn the_oldest_half_done_dial_gives_way() {
        let mut dials = Dials::default();
        let mut hosts = Vec::new();
        for id in 0..=DIALS_MAX as u64 {
            let (host, ours) = UnixStream::pair().unwrap();
            hosts.push(host);
            dials.insert(id, ours);
        }
        assert_eq!(dials.streams.len(), DIALS_MAX);
        assert_eq!(hosts[0].read(&mut [0]).unwrap(), 0, "the first was hung up on");
        assert!(dials.streams.contains_key(&(DIALS_MAX as u64)));
    }
}
