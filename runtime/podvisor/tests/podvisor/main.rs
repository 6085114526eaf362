//! The `podvisor` command as a process. Each file is about some of its commands; `fake` is the daemon before which they run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod device_plugin;
mod fake;
mod images;
mod people;
