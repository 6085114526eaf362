//! Seccomp rules of an OCI specification, as the program that the guest's kernel runs (seccomp(2)). The daemon compiles on the node. The
//! agent compiles only what a daemon older than itself sends.
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

/// Longest program, in bytes: `BPF_MAXINSNS` instructions (include/uapi/linux/bpf_common.h) of `struct sock_filter`.
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

/// Whether a program of so many bytes is one that the kernel can take: whole instructions, and not too many.
pub fn is_program_length(bytes: usize) -> bool {
    bytes <= PROGRAM_BYTES_MAX && bytes.is_multiple_of(INSTRUCTION_BYTES)
}
