//! Containers' output as CRI log files. See `copy.rs` for the loop, `line.rs` for the format, and `file.rs`
//! for the file, rotation and failures.
//!
//! [`copy`] takes one output stream of a container to its [`LogFile`] line by line. After each write it
//! reports the progress, so that the agent may discard the bytes. A failing log never stops a container:
//! lines without room are counted and dropped, and writing resumes by itself.
//!
//! The format is the CRI's: `<RFC 3339, nanoseconds> <stdout|stderr> <P|F> <content>\n`. This crate never
//! reads a log, never deletes one, and knows nothing of pods.

#![forbid(unsafe_code)]

mod copy;
mod counters;
mod file;
mod line;

pub use copy::copy;
pub use counters::register_counters;
pub use file::LogFile;
pub use line::{LineEnd, LogStream};
