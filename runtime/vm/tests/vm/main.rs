//! The client of a VMM against VMMs, of this build and of earlier ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod older;
mod spawn;
