//! The pages that guests of one template write to before their pods' first containers start. The first pod of a template shows
//! them, once for each daemon, and the VMMs of the others make their copies of them ahead: else each is a page fault of the guest,
//! or two.
//!
//! The kernel says which they are (`/proc/<pid>/pagemap`), and at a moment at which no program of a tenant's has run in the guest.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto_vmm::{PAGE_RUNS_MAX, PageRun};

use super::files::MEMORY_FILE;
use super::kept::Template;
use crate::blocking::blocking_within;
use crate::node::Node;

/// How long the look may take, for which the first pod waits.
const LOOKED_WITHIN: Duration = Duration::from_secs(10);

/// Bytes of a page, and of a page's entry in a pagemap.
const PAGE: u64 = 4096;
const ENTRY: usize = 8;

/// Most pages that are copied ahead: four times what a guest of one processor writes to.
const PAGES_MAX: u32 = 4096;

/// The longest part of a template that is looked at, in pages: 4 GiB, where a template has data of some ten MiB.
const LOOKED_AT_MAX: u64 = 1 << 20;

/// Bits of an entry (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;

/// Notes the pages that the guest of this VMM has written to, if no pod has shown them yet. A template goes on without where that
/// fails.
pub(crate) async fn note(node: &Node, template: &Template, pid: u32) {
    if template.first_writes.get().is_some() {
        return;
    }
    let looking = move || read(&PathBuf::from(format!("/proc/{pid}")));
    let doing = "looking at what a guest has written to";
    let found = blocking_within(LOOKED_WITHIN, &node.pools.kernel, doing, looking).await;
    let runs = match found {
        Ok(runs) => {
            tracing::info!(
                runs = runs.len(),
                pages = pages(&runs),
                "pages are copied ahead for pods of a template"
            );
            runs
        }
        Err(error) => {
            tracing::info!(pid, error = error.chain(), "nothing is copied ahead for pods of a template");
            Vec::new()
        }
    };
    let _ = template.first_writes.set(runs);
}

fn pages(runs: &[PageRun]) -> u32 {
    runs.iter().map(|run| run.count).fold(0, u32::saturating_add)
}

/// The pages of a template's memory that the process has copies of. None where there are too many: no guest of the agent alone
/// writes to so many.
fn read(process: &Path) -> io::Result<Vec<PageRun>> {
    let mappings = mappings(&fs::read_to_string(process.join("maps"))?);
    if mappings.iter().map(|mapping| mapping.pages).fold(0, u64::saturating_add) > LOOKED_AT_MAX {
        return Ok(Vec::new());
    }
    let pagemap = File::open(process.join("pagemap"))?;
    let mut runs = Vec::new();
    for mapping in mappings {
        let mut entries = vec![0; usize::try_from(mapping.pages).map_err(io::Error::other)? * ENTRY];
        pagemap.read_exact_at(&mut entries, mapping.start / PAGE * ENTRY as u64)?;
        copies(&mut runs, &mapping, &entries);
    }
    runs.sort_unstable_by_key(|run| run.first);
    Ok(if runs.len() > PAGE_RUNS_MAX || pages(&runs) > PAGES_MAX { Vec::new() } else { runs })
}

/// A part of a template's memory in a process.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    /// Address of the first byte.
    start: u64,
    pages: u64,
    /// The template's page that is there.
    first: u32,
}

/// Returns the parts that a `maps` file has (proc_pid_maps(5)).
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

/// Adds the mapping's pages that are the process's own by now.
fn copies(runs: &mut Vec<PageRun>, mapping: &Mapping, entries: &[u8]) {
    for (page, entry) in (mapping.first..).zip(entries.as_chunks::<ENTRY>().0) {
        let entry = u64::from_ne_bytes(*entry);
        if entry & PRESENT == 0 || entry & OF_FILE != 0 {
            continue;
        }
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

    /// A process as `/proc` shows it, with the template from page 160 on at address 0x10000, and the entries of its pages.
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
    fn pages_that_were_written_to_are_found_and_those_that_were_read_are_not() {
        let shown = process(7, [ABSENT, COPY, COPY | 0x1234, SHARED, COPY, ABSENT, COPY]);
        let expected = [(161, 2), (164, 1), (166, 1)].map(PageRun::from);
        assert_eq!(read(shown.path()).unwrap(), expected);
    }

    #[test]
    fn what_no_guest_of_the_agent_alone_writes_to_is_not_copied_ahead() {
        let many = process(u64::from(PAGES_MAX) + 1, std::iter::repeat_n(COPY, PAGES_MAX as usize + 1));
        assert_eq!(read(many.path()).unwrap(), []);
        let runs = 2 * PAGE_RUNS_MAX + 2;
        let scattered = process(runs as u64, [COPY, SHARED].into_iter().cycle().take(runs));
        assert_eq!(read(scattered.path()).unwrap(), []);
        let large = process(LOOKED_AT_MAX + 1, [COPY]);
        assert_eq!(read(large.path()).unwrap(), []);
    }

    #[test]
    fn a_process_that_has_ended_shows_nothing() {
        assert!(read(Path::new("/proc/0")).is_err());
        assert!(read(process(7, [COPY]).path()).is_err(), "a pagemap that ends too soon");
    }
}
