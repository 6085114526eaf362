//! CRI log files.
