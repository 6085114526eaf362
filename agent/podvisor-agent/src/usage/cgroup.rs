//! Parses a container's cgroup files (Documentation/admin-guide/cgroup-v2.rst,
//! Documentation/accounting/psi.rst). A missing file counts as empty.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use proto_agent::agent::{CpuUsage, DeviceUsage, HugepageUsage, MemoryUsage, Pressure, Stall};

/// Most disks reported of one container. A VM has far fewer.
const DEVICES_MAX: usize = 64;

pub(super) fn cpu(cgroup: &Path) -> CpuUsage {
    let text = read(cgroup, "cpu.stat");
    let stat = Flat::parse(&text);
    CpuUsage {
        usage_us: stat.get("usage_usec"),
        user_us: stat.get("user_usec"),
        system_us: stat.get("system_usec"),
        periods: stat.get("nr_periods"),
        throttled_periods: stat.get("nr_throttled"),
        throttled_us: stat.get("throttled_usec"),
        pressure: pressure(cgroup, "cpu").into(),
        ..Default::default()
    }
}

pub(super) fn memory(cgroup: &Path) -> MemoryUsage {
    let (stat, events) = (read(cgroup, "memory.stat"), read(cgroup, "memory.events"));
    let (stat, events) = (Flat::parse(&stat), Flat::parse(&events));
    MemoryUsage {
        usage: number(cgroup, "memory.current"),
        usage_max: number(cgroup, "memory.peak"),
        anon: stat.get("anon"),
        file: stat.get("file"),
        inactive_file: stat.get("inactive_file"),
        kernel: stat.get("kernel"),
        mapped_file: stat.get("file_mapped"),
        swap: number(cgroup, "memory.swap.current"),
        page_faults: stat.get("pgfault"),
        major_page_faults: stat.get("pgmajfault"),
        limit_hits: events.get("max"),
        oom_events: events.get("oom_kill"),
        pressure: pressure(cgroup, "memory").into(),
        ..Default::default()
    }
}

/// Pressure of a resource. `None` if the kernel does not measure it.
pub(super) fn pressure(cgroup: &Path, resource: &str) -> Option<Pressure> {
    let text = read(cgroup, &format!("{resource}.pressure"));
    (!text.is_empty()).then(|| parse_pressure(&text))
}

pub(super) fn devices(cgroup: &Path) -> Vec<DeviceUsage> {
    let mut devices: Vec<_> =
        read(cgroup, "io.stat").lines().filter_map(parse_device).take(DEVICES_MAX).collect();
    for device in &mut devices {
        device.name = name_of(device.major, device.minor);
    }
    devices
}

pub(super) fn hugepages(cgroup: &Path) -> Vec<HugepageUsage> {
    let entries = fs::read_dir(cgroup).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let sizes = names.filter_map(|name| page_size(&name).map(str::to_owned));
    sizes
        .map(|page_size| HugepageUsage {
            bytes: number(cgroup, &format!("hugetlb.{page_size}.current")),
            page_size,
            ..Default::default()
        })
        .collect()
}

/// The limit on the number of tasks, or 0 for none.
pub(super) fn tasks_max(cgroup: &Path) -> u64 {
    number(cgroup, "pids.max")
}

/// The number of tasks.
pub(super) fn tasks(cgroup: &Path) -> u64 {
    number(cgroup, "pids.current")
}

fn read(cgroup: &Path, name: &str) -> String {
    fs::read_to_string(cgroup.join(name)).unwrap_or_default()
}

/// The number in a single-value file. 0 for "max" and for a missing file.
fn number(cgroup: &Path, name: &str) -> u64 {
    read(cgroup, name).trim().parse().unwrap_or(0)
}

/// The page size in names such as `hugetlb.2MB.current`, but not in `hugetlb.2MB.rsvd.current`.
fn page_size(file: &str) -> Option<&str> {
    let size = file.strip_prefix("hugetlb.")?.strip_suffix(".current")?;
    (!size.contains('.')).then_some(size)
}

/// The kernel's name for a disk.
fn name_of(major: u32, minor: u32) -> String {
    let link = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).unwrap_or_default();
    link.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned()
}

/// A flat-keyed file: a name and a number on each line.
struct Flat<'a>(HashMap<&'a str, u64>);

impl<'a> Flat<'a> {
    fn parse(text: &'a str) -> Flat<'a> {
        let pairs = text.lines().filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name, value.trim().parse().ok()?))
        });
        Flat(pairs.collect())
    }

    /// Value of a name, or 0 if it is missing.
    fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// Parses the lines `some avg10=0.12 avg60=0.00 avg300=0.00 total=345` and `full …` alike.
fn parse_pressure(text: &str) -> Pressure {
    let stall = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
        let value = |key: &str| line.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        let average = |key| value(key).and_then(hundredths).unwrap_or(0);
        Some(Stall {
            total_us: value("total").and_then(|total| total.trim().parse().ok()).unwrap_or(0),
            avg10: average("avg10"),
            avg60: average("avg60"),
            avg300: average("avg300"),
            ..Default::default()
        })
    };
    Pressure { some: stall("some").into(), full: stall("full").into(), ..Default::default() }
}

/// Parses "12.34" as 1234.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.')?;
    if part.len() != 2 {
        return None;
    }
    whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(part.parse().ok()?)
}

/// Parses `254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6`. An idle device may have no values.
fn parse_device(line: &str) -> Option<DeviceUsage> {
    let (device, figures) = line.split_once(' ')?;
    let (major, minor) = device.split_once(':')?;
    let figure = |key: &str| {
        let value = figures.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    Some(DeviceUsage {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        read_bytes: figure("rbytes"),
        write_bytes: figure("wbytes"),
        reads: figure("rios"),
        writes: figure("wios"),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn files(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn figures_are_found_by_their_whole_names() {
        let dir = files(&[
            ("memory.current", "4096\n"),
            ("memory.stat", "anon 100\nanon_thp 7\nfile 50\ninactive_file 20\npgfault 9\n"),
            ("memory.events", "low 0\nmax 3\noom 2\noom_kill 1\n"),
            ("cpu.stat", "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnr_periods 4\n"),
        ]);
        let memory = memory(dir.path());
        assert_eq!((memory.usage, memory.anon, memory.inactive_file), (4096, 100, 20));
        assert_eq!((memory.limit_hits, memory.oom_events, memory.page_faults), (3, 1, 9));
        assert!(memory.pressure.is_none());
        let cpu = cpu(dir.path());
        assert_eq!((cpu.usage_us, cpu.user_us, cpu.system_us, cpu.periods), (30, 20, 10, 4));
    }

    #[test]
    fn a_cgroup_that_is_gone_has_used_nothing() {
        let gone = Path::new("/nonexistent/cgroup");
        assert_eq!((cpu(gone), memory(gone)), (CpuUsage::default(), MemoryUsage::default()));
        assert!(devices(gone).is_empty() && hugepages(gone).is_empty() && pressure(gone, "io").is_none());
    }

    #[test]
    fn pressure_comes_in_hundredths_of_a_percent() {
        let text = "some avg10=12.34 avg60=0.05 avg300=100.00 total=345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
        let pressure = parse_pressure(text);
        let some = pressure.some.unwrap_or_default();
        assert_eq!((some.avg10, some.avg60, some.avg300, some.total_us), (1234, 5, 10_000, 345));
        assert_eq!(pressure.full.unwrap_or_default().total_us, 1);
        assert!(parse_pressure("some avg10=0.00 total=1").full.is_none());
    }

    #[test]
    fn a_disk_without_figures_has_used_nothing() {
        let device = parse_device("254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6").unwrap();
        assert_eq!((device.major, device.minor, device.read_bytes, device.writes), (254, 0, 1, 4));
        assert_eq!(parse_device("254:0 ").unwrap().read_bytes, 0);
        assert_eq!(parse_device("254 rbytes=1"), None);
    }

    #[test]
    fn the_use_of_each_size_of_huge_pages_is_reported_and_reservations_are_not() {
        let dir = files(&[
            ("hugetlb.2MB.current", "2097152\n"),
            ("hugetlb.2MB.rsvd.current", "1\n"),
            ("hugetlb.2MB.max", "max\n"),
        ]);
        let pages = hugepages(dir.path());
        assert_eq!(pages.len(), 1);
        assert_eq!((pages[0].page_size.as_str(), pages[0].bytes), ("2MB", 2 << 20));
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_parser(text in ".{0,200}") {
            let _ = (parse_pressure(&text), parse_device(&text), Flat::parse(&text).get("x"), hundredths(&text));
        }

        #[test]
        fn hundredths_are_read_as_they_are_written(value in 0u32..100_000) {
            prop_assert_eq!(hundredths(&format!("{}.{:02}", value / 100, value % 100)), Some(value));
        }
    }
}
