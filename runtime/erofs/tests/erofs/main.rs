//! Images mounted by the kernel. Needs root and EROFS; the files share `kernel`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod kernel;
mod large;
mod mount;
