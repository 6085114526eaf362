//! Requests for containers and pods, resolved to a plan or refused. Each file is about one part of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod declared_volumes;
mod limits;
mod overhead;
mod plan;
mod refuse;
mod size;
