//! An image's files, mapped side by side into one range of this process. Owns the checks of their places;
//! never reads the files.
//!
//! ```text
//!  offset of a part    ├ file 1 ┤  zeros  ├ file 2 ┤├ file 3 ┤ zeros │
//!                      0                                             next multiple of 2 MiB
//! ```
//! The range is reserved first, as read-only memory of zeros. Each file is then mapped over its place. The
//! files themselves are closed, because the mapping holds its own references.

use std::fs::File;
use std::num::NonZeroUsize;

use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use proto_vmm::{ImagePart, PARTS_MAX};
use vm_memory::MmapRegion;

use crate::layout::LARGE_PAGE;

/// An image's files could not be mapped.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ImageMapError {
    #[error("cannot read the image's size")]
    Metadata(#[source] std::io::Error),
    #[error("an image of {bytes} bytes: it must be a multiple of 2 MiB, and not empty")]
    Size { bytes: u64 },
    #[error("an image of {count} files: 1 to {PARTS_MAX} are possible")]
    Parts { count: usize },
    #[error("file {number} of the image: {length} bytes at {offset:#x} are no whole pages")]
    Unaligned { number: usize, offset: u64, length: u64 },
    #[error("file {number} of the image begins at {offset:#x}, before the end of the one before at {end:#x}")]
    Overlap { number: usize, offset: u64, end: u64 },
    #[error("file {number} of the image has {has} bytes, and {length} are to be mapped")]
    Short { number: usize, has: u64, length: u64 },
    #[error("cannot map file {number} of the image")]
    MapPart { number: usize, source: nix::Error },
    #[error("cannot map the image")]
    Map(#[from] vm_memory::mmap::MmapRegionError),
}

/// Bytes of a page. Files are mapped in whole pages.
const PAGE: u64 = 4096;

/// Returns an image of one whole file.
pub(crate) fn whole(file: File) -> Result<Vec<ImagePart<File>>, ImageMapError> {
    let length = file.metadata().map_err(ImageMapError::Metadata)?.len();
    if length == 0 || !length.is_multiple_of(LARGE_PAGE) {
        return Err(ImageMapError::Size { bytes: length });
    }
    Ok(vec![ImagePart { file, offset: 0, length }])
}

/// Checks the parts: they must be in order, not overlap, and lie within their files. Returns the length of
/// the whole image in bytes, a multiple of 2 MiB.
pub(crate) fn check(parts: &[ImagePart<File>]) -> Result<u64, ImageMapError> {
    if parts.is_empty() || parts.len() > PARTS_MAX {
        return Err(ImageMapError::Parts { count: parts.len() });
    }
    let mut end = 0u64;
    for (number, ImagePart { file, offset, length }) in parts.iter().enumerate() {
        let (offset, length) = (*offset, *length);
        if !offset.is_multiple_of(PAGE) || !length.is_multiple_of(PAGE) || length == 0 {
            return Err(ImageMapError::Unaligned { number, offset, length });
        }
        if offset < end {
            return Err(ImageMapError::Overlap { number, offset, end });
        }
        let has = file.metadata().map_err(ImageMapError::Metadata)?.len();
        if has < length {
            return Err(ImageMapError::Short { number, has, length });
        }
        end = offset.checked_add(length).ok_or(ImageMapError::Unaligned { number, offset, length })?;
    }
    end.checked_next_multiple_of(LARGE_PAGE).ok_or(ImageMapError::Size { bytes: end })
}

/// Maps checked parts into a range of `length` bytes.
pub(crate) fn map(parts: &[ImagePart<File>], length: u64) -> Result<MmapRegion, ImageMapError> {
    let size = |bytes: u64| usize::try_from(bytes).map_err(|_| ImageMapError::Size { bytes });
    let flags = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | libc::MAP_NORESERVE;
    let range = MmapRegion::build(None, size(length)?, libc::PROT_READ, flags)?;
    for (number, ImagePart { file, offset, length: bytes }) in parts.iter().enumerate() {
        let inside = offset.checked_add(*bytes).is_some_and(|end| end <= length);
        assert!(inside, "the part was checked");
        let place = NonZeroUsize::new(range.as_ptr().addr() + size(*offset)?);
        let count = NonZeroUsize::new(size(*bytes)?).ok_or(ImageMapError::Size { bytes: *bytes })?;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED | MapFlags::MAP_NORESERVE;
        // SAFETY: the place lies in the range reserved above. No other code knows this range yet, and it is
        // unmapped as a whole; nothing but the reservation is replaced.
        unsafe { mmap(place, count, ProtFlags::PROT_READ, flags, file, 0) }
            .map_err(|source| ImageMapError::MapPart { number, source })?;
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use nix::sys::memfd::{MFdFlags, memfd_create};
    use vm_memory::{Bytes as _, VolatileMemory as _};

    use super::*;

    const FOUR: u64 = 2 * LARGE_PAGE;

    fn file(length: u64, first: &[u8]) -> File {
        let mut file = File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC).unwrap());
        file.write_all(first).unwrap();
        file.set_len(length).unwrap();
        file
    }

    fn part(offset: u64, length: u64, file: File) -> ImagePart<File> {
        ImagePart { file, offset, length }
    }

    #[test]
    fn files_are_at_their_places_and_zeros_between_them() {
        let parts = vec![
            part(0, 4096, file(4096, b"first")),
            // Only a part of the file.
            part(8192, 8192, file(FOUR, b"second")),
            part(FOUR, 4096, file(8192, b"third")),
        ];
        let length = check(&parts).unwrap();
        assert_eq!(length, FOUR + LARGE_PAGE);
        let range = map(&parts, length).unwrap();
        drop(parts);
        let seen = range.as_volatile_slice();
        let read = |at: u64| {
            let mut bytes = [0; 6];
            seen.read_slice(&mut bytes, at as usize).unwrap();
            bytes
        };
        assert_eq!((&read(0)[..5], &read(8192), &read(FOUR)[..5]), (&b"first"[..], b"second", &b"third"[..]));
        for gap in [4096, 8192 + 8192, FOUR - 8, FOUR + 4096, length - 8] {
            assert_eq!(read(gap), [0; 6], "{gap:#x}");
        }
        let lines = std::fs::read_to_string("/proc/self/maps").unwrap();
        let begin = range.as_ptr().addr();
        let (mut bytes, of_range) = (0, |line: &str| {
            let (range, rest) = line.split_once(' ').unwrap();
            let (from, to) = range.split_once('-').unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            (number(from), number(to), rest.starts_with("r--"))
        });
        for (from, to, only_read) in lines.lines().map(of_range) {
            let (from, to) = (from.max(begin), to.min(begin + length as usize));
            if from < to {
                assert!(only_read, "nothing of it can be written");
                bytes += to - from;
            }
        }
        assert_eq!(bytes as u64, length);
    }

    #[test]
    fn odd_places_are_refused() {
        let two =
            |offset, length| check(&[part(0, FOUR, file(FOUR, b"")), part(offset, length, file(FOUR, b""))]);
        assert!(matches!(two(FOUR - 4096, 4096), Err(ImageMapError::Overlap { number: 1, .. })));
        assert!(matches!(two(0, FOUR), Err(ImageMapError::Overlap { .. })), "not in order");
        for (offset, length) in [(FOUR + 1, 4096), (FOUR, 4095), (FOUR, 0)] {
            assert!(matches!(two(offset, length), Err(ImageMapError::Unaligned { .. })), "{offset} {length}");
        }
        assert!(matches!(two(FOUR, FOUR + 4096), Err(ImageMapError::Short { number: 1, .. })));
        assert!(two(u64::MAX - 4095, 4096).is_err() && two(u64::MAX - 8191, 4096).is_err());
        assert!(matches!(check(&[]), Err(ImageMapError::Parts { count: 0 })));
        let many: Vec<_> = (0..=PARTS_MAX as u64).map(|n| part(n * 4096, 4096, file(4096, b""))).collect();
        assert!(matches!(check(&many), Err(ImageMapError::Parts { .. })));
        assert_eq!(check(&many[..PARTS_MAX]).unwrap(), LARGE_PAGE);
        assert!(map(&many[..PARTS_MAX], LARGE_PAGE).is_ok());
        assert!(matches!(whole(file(4096, b"")), Err(ImageMapError::Size { .. })));
        assert!(matches!(whole(file(0, b"")), Err(ImageMapError::Size { .. })));
    }

    #[test]
    fn what_cannot_be_mapped_is_refused() {
        let (pipe, _other) = std::io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        assert!(matches!(check(&[part(0, 4096, pipe)]), Err(ImageMapError::Short { .. })));
        let write_only = File::options().write(true).open("/dev/null").unwrap();
        assert!(matches!(map(&[part(0, 4096, write_only)], LARGE_PAGE), Err(ImageMapError::MapPart { .. })));
    }
}
