//! The `podvisor` command as a process. Each file tests some of its commands; `fake` is their daemon.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod closed_outputs;
mod device_plugin;
mod fake;
mod images;
mod logs;
mod people;
mod runs;
