//! Moves in-memory files into the node's large pages, 2 MiB each, after they were written. A process that
//! maps such a file then has one fault instead of 512, and a guest one exit. The kernel makes no large pages
//! for in-memory files by itself (`shmem_enabled` is `never` on nearly all nodes). MADV_COLLAPSE, since Linux
//! 6.1, requests them regardless of this setting (madvise(2); Documentation/admin-guide/mm/transhuge.rst).
//!
//! Nothing here changes a file's content, and it is only an optimisation: if the node has no free large page,
//! the file stays as it is. Unsafe code is here because no safe crate offers the request.

#![deny(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

mod mapping;

use mapping::{LARGE_PAGE, Mapping};

/// Least data of a large page, in bytes: the rest becomes zeros and takes memory.
const DATA_MIN: u64 = LARGE_PAGE / 4 * 3;

/// Collapses the pages of an in-memory file (memfd_create(2), tmpfs) into large ones, wherever at least three
/// quarters of one are data. Blocking: some milliseconds for each. Returns the number of large pages
/// requested and obtained.
///
/// A write-sealed file can be mapped for this only since Linux 6.7; collapse it before sealing.
///
/// # Errors
/// The file cannot be inspected or mapped. An unavailable large page is no error.
pub fn gather(file: &File) -> io::Result<Gathered> {
    let dense = dense(file)?;
    let mut gathered = Gathered { asked: dense.len(), made: 0 };
    let Some(last) = dense.last() else { return Ok(gathered) };
    let mapping = Mapping::of(file, last + LARGE_PAGE)?;
    gathered.made = dense.iter().filter(|at| mapping.collapse(**at).is_ok()).count();
    Ok(gathered)
}

/// The large pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// How many have enough data.
    pub asked: usize,
    /// How many of them the file has now.
    pub made: usize,
}

/// The places of whole large pages with enough data, in order.
fn dense(file: &File) -> io::Result<Vec<u64>> {
    let end = file.metadata()?.len() / LARGE_PAGE * LARGE_PAGE;
    let (mut dense, mut page, mut bytes, mut at) = (Vec::new(), 0, 0, 0);
    while let Some((from, to)) = next_data(file, at, end)? {
        at = from;
        while at < to {
            if at >= page + LARGE_PAGE {
                (page, bytes) = (at / LARGE_PAGE * LARGE_PAGE, 0);
            }
            let part = to.min(page + LARGE_PAGE) - at;
            // Counted once, when it becomes enough.
            if bytes < DATA_MIN && bytes + part >= DATA_MIN {
                dense.push(page);
            }
            bytes += part;
            at += part;
        }
    }
    Ok(dense)
}

/// The next data from `at` on, up to `end`.
fn next_data(file: &File, at: u64, end: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |from: u64, whence| {
        let from = i64::try_from(from).map_err(|_| Errno::EOVERFLOW)?;
        match lseek(file.as_fd(), from, whence) {
            Ok(found) => Ok(u64::try_from(found).unwrap_or(end).min(end)),
            // Nothing but a hole is left.
            Err(Errno::ENXIO) => Ok(end),
            Err(error) => Err(error),
        }
    };
    let from = seek(at, Whence::SeekData)?;
    if from >= end {
        return Ok(None);
    }
    Ok(Some((from, seek(from, Whence::SeekHole)?)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    fn in_memory(bytes: u64) -> File {
        let file = File::from(memfd_create(c"large-pages", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(bytes).unwrap();
        file
    }

    #[test]
    fn large_pages_are_those_with_enough_data_in_one_piece_or_in_many() {
        let file = in_memory(6 * LARGE_PAGE + 4096);
        assert_eq!(dense(&file).unwrap(), []);
        let write = |at: u64, bytes: u64| {
            file.write_all_at(&vec![7; usize::try_from(bytes).unwrap()], at).unwrap();
        };
        // Too little; enough in two pieces; the end of one, all of the next, and too little of the one after
        // it.
        write(0, DATA_MIN - 4096);
        write(LARGE_PAGE, DATA_MIN - 8192);
        write(2 * LARGE_PAGE - 8192, 8192);
        write(3 * LARGE_PAGE - 4096, 4096 + LARGE_PAGE + 4096);
        // Data beyond the last whole one.
        write(6 * LARGE_PAGE, 4096);
        assert_eq!(dense(&file).unwrap(), [LARGE_PAGE, 3 * LARGE_PAGE]);
    }

    #[test]
    fn what_is_in_a_file_stays_and_little_is_added() {
        let file = in_memory(4 * LARGE_PAGE);
        let data: Vec<u8> = (0..DATA_MIN).map(|at| (at / 4096 % 251) as u8 + 1).collect();
        file.write_all_at(&data, LARGE_PAGE).unwrap();
        let gathered = gather(&file).unwrap();
        assert_eq!(gathered.asked, 1);
        println!("the node gave {} large pages of 1", gathered.made);
        let mut read = vec![9; usize::try_from(LARGE_PAGE).unwrap()];
        file.read_exact_at(&mut read, LARGE_PAGE).unwrap();
        let (begin, rest) = read.split_at(data.len());
        assert!(begin == data && rest.iter().all(|byte| *byte == 0));
        assert!(file.metadata().unwrap().blocks() * 512 <= LARGE_PAGE);
        // Asked for again, it is there.
        assert_eq!(gather(&file).unwrap(), gathered);
    }

    #[test]
    fn a_file_without_data_or_on_a_disk_is_no_error() {
        let none = Gathered { asked: 0, made: 0 };
        assert_eq!(gather(&in_memory(0)).unwrap(), none);
        assert_eq!(gather(&in_memory(8 * LARGE_PAGE)).unwrap(), none);
        let on_disk = tempfile::tempfile().unwrap();
        on_disk.write_all_at(&vec![1; usize::try_from(LARGE_PAGE).unwrap()], 0).unwrap();
        assert_eq!(gather(&on_disk).unwrap().asked, 1);
    }
}
