//! Containers' output as CRI log files. Where to read on: `copy.rs` (the loop), `line.rs` (the format), `file.rs`
//! (the file, rotation and failures).
//!
//! [`copy`] takes one output stream of a container to its [`LogFile`] line by line and reports
//! after each write how much has arrived, so that the agent may forget it. A log that cannot be written
//! never stops a container: what does not fit is counted and dropped, and writing resumes by itself.
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
pub use line::LogStream;
