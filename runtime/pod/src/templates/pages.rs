//! The pages used by guests of one template before any tenant's program runs in them. One pod of a template
//! shows them, once for each daemon. The VMMs of later pods prepare them in advance, because each would
//! otherwise be a page fault of the guest, or two.
//!
//! The kernel reports the pages (`/proc/<pid>/pagemap`) at two moments: when a pod is ready, and when its
//! first container has been created but not started.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use proto_vmm::{PAGE_RUNS_MAX, PageRun};

/// The name of the files in memory, as `/proc` shows it.
pub(super) const MEMORY_FILE: &CStr = c"podvisor-template";

/// Bytes of a page, and of a page's entry in a pagemap.
const PAGE: u64 = 4096;
const ENTRY: usize = 8;

/// Most pages copied in advance: four times the number of pages written by a guest with one processor.
const WRITES_MAX: u32 = 4096;

/// Most pages mapped in advance: a template has data of some ten MiB, and the host's kernel maps sixteen for
/// each page read by a guest.
const READS_MAX: u32 = 8192;

/// The longest inspected part of a template, in pages: 4 GiB. A template has data of some ten MiB.
const LOOKED_AT_MAX: u64 = 1 << 20;

/// Bits of an entry (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;

/// Pages of a template's memory used by a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages {
    /// The guest has written to these.
    pub(super) writes: Vec<PageRun>,
    /// The guest has read these, or one beside them.
    pub(super) reads: Vec<PageRun>,
}

/// A moment of a pod's life when its used pages are read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// The pod is ready.
    Ready,
    /// The pod has its first container, not yet started.
    Container,
}

/// Number of pages.
pub(super) fn count(runs: &[PageRun]) -> u32 {
    runs.iter().map(|run| run.count).fold(0, u32::saturating_add)
}

/// The template's pages copied by the process, and those mapped by it. None if there are too many: no guest
/// with only its agent uses so many.
pub(super) fn read(process: &Path) -> io::Result<Pages> {
    let mappings = mappings(&fs::read_to_string(process.join("maps"))?);
    if mappings.iter().map(|mapping| mapping.pages).fold(0, u64::saturating_add) > LOOKED_AT_MAX {
        return Ok(Pages::default());
    }
    let pagemap = File::open(process.join("pagemap"))?;
    let mut pages = Pages::default();
    for mapping in mappings {
        let mut entries = vec![0; usize::try_from(mapping.pages).map_err(io::Error::other)? * ENTRY];
        pagemap.read_exact_at(&mut entries, mapping.start / PAGE * ENTRY as u64)?;
        add(&mut pages, &mapping, &entries);
    }
    Ok(Pages { writes: bounded(pages.writes, WRITES_MAX), reads: bounded(pages.reads, READS_MAX) })
}

/// The runs in order, or none where they are more than a VMM takes or of more pages than this.
fn bounded(mut runs: Vec<PageRun>, pages_max: u32) -> Vec<PageRun> {
    runs.sort_unstable_by_key(|run| run.first);
    if runs.len() > PAGE_RUNS_MAX || count(&runs) > pages_max { Vec::new() } else { runs }
}

/// A part of a template's memory in a process.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    /// Address of the first byte.
    start: u64,
    pages: u64,
    /// The template's page at the beginning.
    first: u32,
}

/// Returns the template's mappings in a `maps` file (proc_pid_maps(5)).
fn mappings(maps: &str) -> Vec<Mapping> {
    let parse = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (range, _, offset) = (words.next()?, words.next()?, words.next()?);
        let name = words.nth(2)?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = range.split_once('-')?;
        let (start, end) = (number(start)?, number(end)?);
        let first = u32::try_from(number(offset)? / PAGE).ok()?;
        let of_template =
            name.strip_prefix("/memfd:").is_some_and(|name| name.as_bytes() == MEMORY_FILE.to_bytes());
        of_template.then_some(Mapping { start, pages: end.checked_sub(start)? / PAGE, first })
    };
    maps.lines().filter_map(parse).collect()
}

/// Adds the mapping's present pages: the process's own copies, and those of the template's file.
fn add(pages: &mut Pages, mapping: &Mapping, entries: &[u8]) {
    for (page, entry) in (mapping.first..).zip(entries.as_chunks::<ENTRY>().0) {
        let entry = u64::from_ne_bytes(*entry);
        if entry & PRESENT == 0 {
            continue;
        }
        let runs = if entry & OF_FILE == 0 { &mut pages.writes } else { &mut pages.reads };
        match runs.last_mut() {
            Some(run) if run.first + run.count == page => run.count += 1,
            _ => runs.push(PageRun { first: page, count: 1 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const COPY: u64 = PRESENT;
    const SHARED: u64 = PRESENT | OF_FILE;
    const ABSENT: u64 = 0;

    /// A process in `/proc`, with the template from page 160 on at address 0x10000, and the entries of its
    /// pages.
    fn process(pages: u64, entries: impl IntoIterator<Item = u64>) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        let maps = format!(
            "\
            00004000-00005000 r--p 00000000 fe:00 123                        /usr/bin/podvisor-vmm\n\
            00010000-{:08x} rw-p 000a0000 00:01 1035                       /memfd:podvisor-template (deleted)\n\
            40000000-40200000 rw-p 00000000 00:00 0 \n\
            40200000-40201000 r--s 00000000 00:01 1036                       /memfd:other (deleted)\n",
            0x10000 + pages * PAGE
        );
        fs::write(dir.path().join("maps"), maps).unwrap();
        let pagemap = File::create(dir.path().join("pagemap")).unwrap();
        let bytes: Vec<u8> = entries.into_iter().flat_map(u64::to_ne_bytes).collect();
        pagemap.write_all_at(&[0xff; 4], 4 * ENTRY as u64).unwrap();
        pagemap.write_all_at(&bytes, 16 * ENTRY as u64).unwrap();
        dir
    }

    #[test]
    fn pages_that_were_written_to_are_found_and_those_that_were_read() {
        let shown = process(7, [ABSENT, COPY, COPY | 0x1234, SHARED, COPY, ABSENT, COPY]);
        let writes = [(161, 2), (164, 1), (166, 1)].map(PageRun::from).to_vec();
        assert_eq!(read(shown.path()).unwrap(), Pages { writes, reads: vec![PageRun::from((163, 1))] });
    }

    #[test]
    fn what_no_guest_of_the_agent_alone_uses_is_not_there_ahead() {
        for (one, max) in [(COPY, WRITES_MAX), (SHARED, READS_MAX)] {
            let many = process(u64::from(max) + 1, std::iter::repeat_n(one, max as usize + 1));
            assert_eq!(read(many.path()).unwrap(), Pages::default());
        }
        let runs = 2 * PAGE_RUNS_MAX + 2;
        let scattered = process(runs as u64, [COPY, SHARED].into_iter().cycle().take(runs));
        assert_eq!(read(scattered.path()).unwrap(), Pages::default());
        let large = process(LOOKED_AT_MAX + 1, [COPY]);
        assert_eq!(read(large.path()).unwrap(), Pages::default());
    }

    #[test]
    fn a_process_that_has_ended_shows_nothing() {
        assert!(read(Path::new("/proc/0")).is_err());
        assert!(read(process(7, [COPY]).path()).is_err(), "a pagemap that ends too soon");
    }
}
