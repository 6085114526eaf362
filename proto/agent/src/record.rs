//! Records of an input stream: bytes for a process's stdin, terminal sizes and the end of file, in their
//! order. Pure.
//!
//! ```text
//!   kind (u8) | argument (u32, little-endian)
//!   0 bytes   | number of bytes to follow
//!   1 resize  | columns in the low half, rows in the high half
//!   2 end     | 0: the process's end of file; sizes may follow
//! ```
//!
//! If a connection closes without an end, the process's stdin stays open: only the client has gone away.

use crate::FRAME_BYTES_MAX;

/// Bytes of a record before its content.
pub const RECORD_BYTES: usize = 5;

const BYTES: u8 = 0;
const RESIZE: u8 = 1;
const END: u8 = 2;

/// One record's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Number of bytes to follow, at most [`FRAME_BYTES_MAX`].
    Bytes(u32),
    /// The terminal's new size, in characters.
    Resize {
        /// Characters in a line.
        columns: u16,
        /// Lines.
        rows: u16,
    },
    /// End of file.
    End,
}

/// A record of an unknown kind, or with an argument beyond its bound.
#[derive(Debug, thiserror::Error)]
#[error("an input record of kind {kind} with {argument} is not known")]
pub struct RecordError {
    kind: u8,
    argument: u32,
}

impl Record {
    /// The record's bytes on the wire.
    pub fn encode(self) -> [u8; RECORD_BYTES] {
        let (kind, argument) = match self {
            Record::Bytes(count) => (BYTES, count),
            Record::Resize { columns, rows } => (RESIZE, u32::from(rows) << 16 | u32::from(columns)),
            Record::End => (END, 0),
        };
        let [a, b, c, d] = argument.to_le_bytes();
        [kind, a, b, c, d]
    }

    /// Decodes the record from these bytes of the wire.
    pub fn decode([kind, a, b, c, d]: [u8; RECORD_BYTES]) -> Result<Record, RecordError> {
        let argument = u32::from_le_bytes([a, b, c, d]);
        match kind {
            BYTES if argument <= FRAME_BYTES_MAX => Ok(Record::Bytes(argument)),
            RESIZE => {
                Ok(Record::Resize { columns: u16::from_le_bytes([a, b]), rows: u16::from_le_bytes([c, d]) })
            }
            END => Ok(Record::End),
            _ => Err(RecordError { kind, argument }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives() {
        for record in [Record::Bytes(7), Record::Resize { columns: 300, rows: 24 }, Record::End] {
            assert_eq!(Record::decode(record.encode()).unwrap(), record);
        }
    }

    #[test]
    fn an_unknown_kind_and_a_length_beyond_the_bound_are_refused() {
        assert!(Record::decode([3, 0, 0, 0, 0]).is_err());
        assert!(Record::decode(Record::Bytes(FRAME_BYTES_MAX + 1).encode()).is_err());
    }
}
