//! Splits a byte stream into CRI log lines. Owns the lines' form; pure: no clock, no file.
//!
//! ```text
//!   pending: the bytes of the current line so far, at most 16 KiB
//!     '\n'                   → pending as F, whole or the end of a split line; a terminal's without its '\r'
//!     a byte beyond 16 KiB   → pending as P, and the byte begins the next fragment
//!     end of the stream      → pending as P, if there is any
//! ```

/// Longest content of one line. Longer ones are split. The kubelet reads lines of this size.
const LINE_BYTES_MAX: usize = 16 << 10;

/// An output of a container. A terminal's output is stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogStream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// How the lines of an output end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// With a newline. All bytes before it are the line's.
    Newline,
    /// A terminal puts a carriage return before each newline (`ONLCR`, termios(3)). It is not the line's.
    Terminal,
}

/// Turns one stream's bytes into log lines.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    stream: LogStream,
    line_end: LineEnd,
    pending: Vec<u8>,
    max: usize,
    emitted: u64,
}

impl LineSplitter {
    /// Starts at the beginning of a line.
    pub(crate) fn new(stream: LogStream, line_end: LineEnd) -> Self {
        Self::with_max(stream, line_end, LINE_BYTES_MAX)
    }

    fn with_max(stream: LogStream, line_end: LineEnd, max: usize) -> Self {
        Self { stream, line_end, pending: Vec::new(), max, emitted: 0 }
    }

    /// Takes the stream's next bytes. Appends each complete or overlong line to `lines`.
    pub(crate) fn push(&mut self, mut bytes: &[u8], timestamp: &str, lines: &mut Vec<u8>) {
        while !bytes.is_empty() {
            let room = self.max - self.pending.len();
            // One byte more than fits: a newline right after a full line still ends it.
            let seen = &bytes[..bytes.len().min(room + 1)];
            if let Some(end) = seen.iter().position(|byte| *byte == b'\n') {
                let content = self.without_return(&bytes[..end]);
                self.emit(content, b'F', timestamp, lines);
                self.emitted += 1;
                bytes = &bytes[end + 1..];
            } else if bytes.len() > room {
                self.emit(&bytes[..room], b'P', timestamp, lines);
                bytes = &bytes[room..];
            } else {
                self.pending.extend_from_slice(bytes);
                return;
            }
        }
    }

    /// Removes and counts the carriage return of a terminal's line that ends with `rest`.
    fn without_return<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        if self.line_end == LineEnd::Newline {
            return rest;
        }
        let content = rest.strip_suffix(b"\r");
        if content.is_some() || (rest.is_empty() && self.pending.pop_if(|byte| *byte == b'\r').is_some()) {
            self.emitted += 1;
        }
        content.unwrap_or(rest)
    }

    /// Ends the stream. Appends the rest without a newline as a partial line.
    pub(crate) fn finish(&mut self, timestamp: &str, lines: &mut Vec<u8>) {
        if !self.pending.is_empty() {
            self.emit(&[], b'P', timestamp, lines);
        }
    }

    /// Bytes of the stream in the emitted lines, with their ends.
    pub(crate) fn emitted(&self) -> u64 {
        self.emitted
    }

    fn emit(&mut self, rest: &[u8], flag: u8, timestamp: &str, lines: &mut Vec<u8>) {
        lines.extend_from_slice(timestamp.as_bytes());
        lines.push(b' ');
        lines.extend_from_slice(self.stream.name().as_bytes());
        lines.extend_from_slice(&[b' ', flag, b' ']);
        lines.extend_from_slice(&self.pending);
        lines.extend_from_slice(rest);
        lines.push(b'\n');
        self.emitted += (self.pending.len() + rest.len()) as u64;
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIME: &str = "2026-01-02T03:04:05.000000006Z";

    /// The flag and content of every line in `log`.
    fn parse(log: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let head = format!("{TIME} stdout ");
        let lines = log.split_inclusive(|byte| *byte == b'\n');
        let parse_line = |line: &[u8]| {
            let line = line.strip_suffix(b"\n").expect("every line ends");
            let rest = line.strip_prefix(head.as_bytes()).expect("every line begins alike");
            assert_eq!(rest[1], b' ');
            (rest[0], rest[2..].to_vec())
        };
        lines.map(parse_line).collect()
    }

    fn split(max: usize, chunks: &[&[u8]]) -> Vec<(u8, Vec<u8>)> {
        split_at(LineEnd::Newline, max, chunks)
    }

    fn split_at(end: LineEnd, max: usize, chunks: &[&[u8]]) -> Vec<(u8, Vec<u8>)> {
        let (mut splitter, mut log) = (LineSplitter::with_max(LogStream::Stdout, end, max), Vec::new());
        chunks.iter().for_each(|chunk| splitter.push(chunk, TIME, &mut log));
        splitter.finish(TIME, &mut log);
        assert_eq!(splitter.emitted(), chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>());
        parse(&log)
    }

    fn line(flag: char, content: &str) -> (u8, Vec<u8>) {
        (flag as u8, content.as_bytes().to_vec())
    }

    #[test]
    fn a_line_is_time_stream_flag_and_content() {
        let (mut splitter, mut log) = (LineSplitter::new(LogStream::Stderr, LineEnd::Newline), Vec::new());
        splitter.push(b"hello\n", TIME, &mut log);
        assert_eq!(log, format!("{TIME} stderr F hello\n").as_bytes());
    }

    #[test]
    fn an_empty_line_is_kept() {
        assert_eq!(split(8, &[b"\n\n"]), [line('F', ""), line('F', "")]);
    }

    #[test]
    fn a_line_of_just_the_bound_is_not_split() {
        assert_eq!(split(4, &[b"abcd\n"]), [line('F', "abcd")]);
        assert_eq!(split(4, &[b"abcd", b"\n"]), [line('F', "abcd")]);
    }

    #[test]
    fn a_longer_line_is_split_and_its_end_is_full() {
        assert_eq!(split(4, &[b"abcdefghi\n"]), [line('P', "abcd"), line('P', "efgh"), line('F', "i")]);
    }

    #[test]
    fn an_unterminated_end_is_partial() {
        assert_eq!(split(4, &[b"ab\ncd"]), [line('F', "ab"), line('P', "cd")]);
    }

    #[test]
    fn what_waits_for_its_newline_is_not_yet_emitted() {
        let (mut splitter, mut log) = (LineSplitter::new(LogStream::Stdout, LineEnd::Newline), Vec::new());
        splitter.push(b"one\ntwo", TIME, &mut log);
        assert_eq!(splitter.emitted(), 4);
        splitter.push(b"\n", TIME, &mut log);
        assert_eq!(splitter.emitted(), 8);
    }

    #[test]
    fn a_terminals_line_ends_before_its_return_in_any_pieces() {
        let text = b"one\r\n\r\n\rtwo\r\r\nabcd\r\nabcde\r\nlast\r";
        let lines = |content: &str| content.split('|').map(|text| line('F', text)).collect::<Vec<_>>();
        let mut expected = lines("one||\rtwo\r|abcd|abcde");
        expected.push(line('P', "last\r"));
        for cut in 0..text.len() {
            assert_eq!(
                split_at(LineEnd::Terminal, 16, &[&text[..cut], &text[cut..]]),
                expected,
                "cut at {cut}"
            );
        }
        // A return that no longer fits begins the next fragment.
        assert_eq!(split_at(LineEnd::Terminal, 4, &[b"abcd\r\n"]), [line('P', "abcd"), line('F', "")]);
        assert_eq!(split_at(LineEnd::Terminal, 4, &[b"abc\r", b"\n"]), [line('F', "abc")]);
        assert_eq!(split(8, &[b"one\r\n"]), [line('F', "one\r")]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_added_or_flagged_wrongly(
            input in prop::collection::vec(prop_oneof![4 => any::<u8>(), 1 => Just(b'\n')], 0..400),
            cuts in prop::collection::vec(1usize..40, 1..40),
            max in 1usize..20,
        ) {
            let mut chunks = Vec::new();
            let (mut rest, mut cuts) = (input.as_slice(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(rest.len().min(*cuts.next().expect("cycles")));
                chunks.push(chunk);
                rest = after;
            }
            let lines = split(max, &chunks);
            let mut output = Vec::new();
            for (number, (flag, content)) in lines.iter().enumerate() {
                output.extend_from_slice(content);
                prop_assert!(content.len() <= max);
                match flag {
                    b'F' => output.push(b'\n'),
                    b'P' => prop_assert!(content.len() == max || number == lines.len() - 1),
                    other => prop_assert!(false, "flag {other}"),
                }
            }
            prop_assert_eq!(&output, &input);
            // The same bytes give the same lines, regardless of the pieces.
            prop_assert_eq!(lines, split(max, &[&input]));
        }
    }
}
