//! The buffer of an output stream: the bytes not yet durable on the host. Pure; [`crate::streams::output`]
//! moves the bytes.
//!
//! ```text
//!   0 ─────────── start ═══════════════ end ─ ─ ─ ▶
//!     acknowledged      held (≤ capacity)   not read from the process yet
//!
//!   push: end moves right, up to the capacity
//!   acknowledge(total): start moves right to `total`; never left, never beyond `end`
//!   end_of_stream: no push any more; with start = end the stream is finished
//! ```

use std::collections::VecDeque;

/// The stream's bytes from `start` to `end`.
#[derive(Debug)]
pub(crate) struct OutputBuffer {
    start: u64,
    held: VecDeque<u8>,
    capacity: usize,
    ended: bool,
}

/// An offset or acknowledgement outside of the stream.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OffsetError {
    #[error("byte {offset} was acknowledged already: the stream is held from {start} on")]
    Acknowledged { offset: u64, start: u64 },
    #[error("byte {offset} is beyond the stream's {end} bytes")]
    Beyond { offset: u64, end: u64 },
}

impl OutputBuffer {
    pub(crate) fn new(capacity: usize) -> OutputBuffer {
        OutputBuffer { start: 0, held: VecDeque::new(), capacity, ended: false }
    }

    /// Bytes that may be pushed now.
    pub(crate) fn space(&self) -> usize {
        if self.ended { 0 } else { self.capacity - self.held.len() }
    }

    /// Adds bytes of the process, at most [`space`](Self::space). Bytes after the end are dropped.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if !self.ended {
            debug_assert!(bytes.len() <= self.space());
            self.held.extend(bytes);
        }
    }

    /// Notes the end of the process's output.
    pub(crate) fn end_of_stream(&mut self) {
        self.ended = true;
        self.release();
    }

    /// Drops the first `total` bytes of the stream, because the host has them. A smaller total than before
    /// changes nothing.
    pub(crate) fn acknowledge(&mut self, total: u64) -> Result<(), OffsetError> {
        if total > self.end() {
            return Err(OffsetError::Beyond { offset: total, end: self.end() });
        }
        let new = usize::try_from(total.saturating_sub(self.start)).unwrap_or(usize::MAX);
        self.held.drain(..new.min(self.held.len()));
        self.start = self.start.max(total);
        if self.finished() {
            self.release();
        }
        Ok(())
    }

    /// Frees unused memory. Later bytes need new memory, page by page.
    pub(crate) fn release(&mut self) {
        self.held.shrink_to_fit();
    }

    /// Checks whether a host may continue at this byte.
    pub(crate) fn check(&self, offset: u64) -> Result<(), OffsetError> {
        if offset < self.start {
            return Err(OffsetError::Acknowledged { offset, start: self.start });
        }
        if offset > self.end() {
            return Err(OffsetError::Beyond { offset, end: self.end() });
        }
        Ok(())
    }

    /// Copies held bytes from `offset` on. Copies none if none are there yet.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let Ok(skip) = usize::try_from(offset.saturating_sub(self.start)) else { return 0 };
        let (front, back) = self.held.as_slices();
        let mut copied = 0;
        for (slice, skip) in [(front, skip), (back, skip.saturating_sub(front.len()))] {
            let slice = slice.get(skip..).unwrap_or(&[]);
            let count = slice.len().min(into.len() - copied);
            into[copied..copied + count].copy_from_slice(&slice[..count]);
            copied += count;
        }
        copied
    }

    /// Returns true if no byte will follow `offset`.
    pub(crate) fn ends_at(&self, offset: u64) -> bool {
        self.ended && offset >= self.end()
    }

    /// Returns true if the host has the whole stream.
    pub(crate) fn finished(&self) -> bool {
        self.ended && self.held.is_empty()
    }

    fn end(&self) -> u64 {
        self.start + self.held.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_buffer_has_no_space_until_it_is_acknowledged() {
        let mut buffer = OutputBuffer::new(4);
        buffer.push(b"abcd");
        assert_eq!(buffer.space(), 0);
        buffer.acknowledge(3).unwrap();
        assert_eq!(buffer.space(), 3);
    }

    #[test]
    fn an_acknowledgement_beyond_the_stream_is_refused() {
        let mut buffer = OutputBuffer::new(4);
        buffer.push(b"ab");
        assert_eq!(buffer.acknowledge(3), Err(OffsetError::Beyond { offset: 3, end: 2 }));
        assert_eq!(buffer.space(), 2);
    }

    #[test]
    fn an_acknowledged_byte_cannot_be_asked_for_again() {
        let mut buffer = OutputBuffer::new(4);
        buffer.push(b"ab");
        buffer.acknowledge(2).unwrap();
        assert!(matches!(buffer.check(1), Err(OffsetError::Acknowledged { .. })));
        buffer.check(2).unwrap();
    }

    #[test]
    fn a_stream_is_finished_when_all_is_acknowledged() {
        let mut buffer = OutputBuffer::new(4);
        buffer.push(b"ab");
        buffer.end_of_stream();
        assert!(buffer.ends_at(2) && !buffer.ends_at(1) && !buffer.finished());
        buffer.acknowledge(2).unwrap();
        assert!(buffer.finished());
    }

    /// An event of a stream. The host keeps its durable bytes across restarts.
    #[derive(Clone, Debug)]
    enum Step {
        Write(Vec<u8>),
        Read(usize),
        MakeDurable,
        Acknowledge,
        HostDies,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..20).prop_map(Step::Write),
            (1usize..30).prop_map(Step::Read),
            Just(Step::MakeDurable),
            Just(Step::Acknowledge),
            Just(Step::HostDies),
        ]
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_doubled_however_often_the_host_dies(steps in proptest::collection::vec(step(), 0..200)) {
            let mut buffer = OutputBuffer::new(32);
            let (mut written, mut received, mut durable) = (Vec::new(), Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Write(bytes) => {
                        let fits = &bytes[..bytes.len().min(buffer.space())];
                        buffer.push(fits);
                        written.extend_from_slice(fits);
                    }
                    Step::Read(count) => {
                        let mut bytes = vec![0; count];
                        let read = buffer.read(received.len() as u64, &mut bytes);
                        received.extend_from_slice(&bytes[..read]);
                    }
                    Step::MakeDurable => durable = received.clone(),
                    Step::Acknowledge => buffer.acknowledge(durable.len() as u64).unwrap(),
                    Step::HostDies => {
                        received = durable.clone();
                        buffer.check(received.len() as u64).unwrap();
                        buffer.acknowledge(received.len() as u64).unwrap();
                    }
                }
                prop_assert!(written.starts_with(&received));
            }
            buffer.end_of_stream();
            let mut bytes = vec![0; 64];
            let read = buffer.read(received.len() as u64, &mut bytes);
            received.extend_from_slice(&bytes[..read]);
            prop_assert_eq!(&received, &written);
            prop_assert!(buffer.ends_at(received.len() as u64));
            buffer.acknowledge(received.len() as u64).unwrap();
            prop_assert!(buffer.finished());
        }
    }
}
