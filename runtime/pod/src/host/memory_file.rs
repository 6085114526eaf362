//! In-memory files mapped by VMs. Once sealed, they cannot change, and their pages need no disk reads.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// A sealable in-memory file. The name is for readers of `/proc`.
pub(crate) fn create(name: &CStr) -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    Ok(memfd_create(name, flags)?.into())
}

/// Collapses the file into large pages, if the node has them, and seals it, even against this process.
/// Returns it opened for reading only. Seals let a writer's descriptor fill holes (fallocate(2)), and one VMM
/// would take the node's memory with a file that others use. Before Linux 6.7, a sealed file can also only be
/// mapped shared through such a descriptor.
pub(crate) fn finish(file: &File) -> io::Result<File> {
    match runtime_large_pages::gather(file) {
        Ok(gathered) => tracing::debug!(?gathered, "a file in memory is gathered in large pages"),
        Err(error) => tracing::debug!(%error, "a file in memory stays in small pages"),
    }
    seal(file)?;
    open_anew(file)
}

/// The same file opened once more, for reading only, with a place of its own.
pub(crate) fn open_anew(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Seals the file against changes.
fn seal(file: &File) -> io::Result<()> {
    let seals =
        SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use super::*;

    #[test]
    fn a_finished_file_is_read_and_never_written() {
        let file = create(c"test").unwrap();
        file.write_all_at(&[7; 4 << 20], 0).unwrap();
        let read = finish(&file).unwrap();
        file.write_all_at(&[8], 0).unwrap_err();
        file.set_len(0).unwrap_err();
        read.write_all_at(&[8], 0).unwrap_err();
        let mut end = [0; 2];
        read.read_exact_at(&mut end, (4 << 20) - 2).unwrap();
        assert_eq!(end, [7; 2]);
    }

    #[test]
    fn nobody_with_a_finished_file_fills_its_holes() {
        let file = create(c"test").unwrap();
        file.set_len(4 << 20).unwrap();
        let read = finish(&file).unwrap();
        let filled = rustix::fs::fallocate(&read, rustix::fs::FallocateFlags::empty(), 0, 4 << 20);
        assert_eq!(filled.unwrap_err(), rustix::io::Errno::BADF);
        assert_eq!(read.metadata().unwrap().blocks(), 0);
    }
}
