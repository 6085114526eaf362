//! The error of preparing a guest to boot.

use super::command_line::CommandLineError;
use super::kernel::KernelError;

/// The guest could not be prepared to boot.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum BootError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    CommandLine(#[from] CommandLineError),
    #[error("cannot write boot data to guest memory")]
    Memory(#[from] vm_memory::GuestMemoryError),
    #[error("cannot write boot_params to guest memory")]
    Parameters(#[source] linux_loader::configurator::Error),
}
