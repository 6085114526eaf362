//! The CRI server.
