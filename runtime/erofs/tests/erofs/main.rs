//! Images that the kernel mounts. Needs root and EROFS; `kernel` is what the files share.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod kernel;
mod large;
mod mount;
