//! Why rules make no program.

use std::io;

use libseccomp::error::SeccompError;

/// Why rules make no program.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// An action that hands calls to a program of the node.
    #[error("SCMP_ACT_NOTIFY needs a listener on the node, and a guest's kernel has none")]
    Listener,
    /// An error number that the kernel does not take.
    #[error("the error number {0} of a rule is larger than {max}", max = u16::MAX)]
    ErrorNumber(u32),
    /// More rules than the kernel takes.
    #[error("the rules make {0} instructions, and the kernel takes 4096")]
    TooLong(usize),
    /// The library refuses the rules.
    #[error("libseccomp refuses the rules")]
    Library(#[from] SeccompError),
    /// The program could not be read from the library.
    #[error("cannot read the program from libseccomp")]
    Read(#[from] io::Error),
}
