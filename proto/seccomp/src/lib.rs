//! Compiles seccomp rules of an OCI specification to a program for the guest's kernel (seccomp(2)). Normally
//! the daemon compiles on the node. The agent only compiles rules from a daemon older than itself.
//!
//! The crate must never load a filter.

#![forbid(unsafe_code)]

mod compile;
mod error;
mod instruction;
mod newer_calls;
#[cfg(test)]
mod orders;
mod ranges;

pub use error::FilterError;

/// Longest program, in bytes: `BPF_MAXINSNS` instructions (include/uapi/linux/bpf_common.h) of `struct
/// sock_filter`.
pub const PROGRAM_BYTES_MAX: usize = 4096 * INSTRUCTION_BYTES;

/// Size of `struct sock_filter` (include/uapi/linux/filter.h).
const INSTRUCTION_BYTES: usize = 8;

/// A program for seccomp(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// An array of `struct sock_filter`, of at most [`PROGRAM_BYTES_MAX`] bytes.
    pub program: Vec<u8>,
    /// `SECCOMP_FILTER_FLAG_…` (include/uapi/linux/seccomp.h).
    pub flags: u64,
}

/// Returns true if the kernel can take a program of so many bytes: whole instructions, and not too many.
pub fn is_program_length(bytes: usize) -> bool {
    bytes <= PROGRAM_BYTES_MAX && bytes.is_multiple_of(INSTRUCTION_BYTES)
}
