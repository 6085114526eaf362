//! Why rules cannot be compiled.

use std::io;

use libseccomp::error::SeccompError;

/// Why rules cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// An action to hand calls to a program of the node.
    #[error("SCMP_ACT_NOTIFY needs a listener on the node, and a guest's kernel has none")]
    Listener,
    /// An error number out of the kernel's range.
    #[error("the error number {0} of a rule is larger than {max}", max = u16::MAX)]
    ErrorNumber(u32),
    /// Too many rules for the kernel.
    #[error("the rules make {0} instructions, and the kernel takes 4096")]
    TooLong(usize),
    /// The library refuses the rules.
    #[error("libseccomp refuses the rules")]
    Library(#[from] SeccompError),
    /// The program could not be read from the library.
    #[error("cannot read the program from libseccomp")]
    Read(#[from] io::Error),
}
