//! The data of a sparse file, even if its holes have turned into zeros during installation. Blocking work.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;

/// Bytes read at a time, and of the longest range.
const CHUNK: usize = 256 * 1024;
/// Size of a block in bytes. Blocks of zeros are left out.
pub(crate) const BLOCK: usize = 4096;
const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// The places of blocks with data, in order; ranges of some hundred KiB at most.
pub(crate) fn find(file: &File) -> io::Result<Vec<Range<u64>>> {
    let mut chunk = vec![0; CHUNK];
    let (mut found, mut at): (Vec<Range<u64>>, _) = (Vec::new(), 0);
    loop {
        at = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            // Blocks are counted from the beginning of the file.
            Ok(start) => start - start % BLOCK as u64,
            // Nothing but a hole is left, or nothing.
            Err(rustix::io::Errno::NXIO) => return Ok(found),
            Err(error) => return Err(error.into()),
        };
        let got = file.read_at(&mut chunk, at)?;
        for (block, start) in chunk[..got].chunks(BLOCK).zip((at..).step_by(BLOCK)) {
            if *block == ZEROS[..block.len()] {
                continue;
            }
            let end = start + block.len() as u64;
            match found.last_mut() {
                Some(last) if last.end == start && length(last) + block.len() <= CHUNK => last.end = end,
                _ => found.push(start..end),
            }
        }
        at += got as u64;
        if got == 0 {
            return Ok(found);
        }
    }
}

/// Copies these ranges to the same places, and shows each to `seen`, with its place.
pub(crate) fn copy(
    ranges: &[Range<u64>],
    from: &File,
    to: &File,
    mut seen: impl FnMut(u64, &[u8]),
) -> io::Result<()> {
    let mut chunk = Vec::new();
    for range in ranges {
        chunk.resize(length(range), 0);
        from.read_exact_at(&mut chunk, range.start)?;
        seen(range.start, &chunk);
        to.write_all_at(&chunk, range.start)?;
    }
    Ok(())
}

fn length(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).expect("a range is as long as a chunk at most")
}
