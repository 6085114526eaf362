//! The server in its clients' view, with sessions that need no pods.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod commands;
mod forwards;
mod hostile;
mod sessions;
mod tls;
