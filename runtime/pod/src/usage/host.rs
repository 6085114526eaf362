//! Usage of the host by a pod's VMM: from its cgroup, or from `/proc` if it has no cgroup of its own. In v2 a
//! cgroup without controllers still has its CPU time and pressure, and only memory comes from `/proc`.

use std::fs;
use std::path::{Path, PathBuf};

use super::figures::{CpuUsage, HostUsage, MemoryUsage, Pressure, Stall};
use crate::clock;
use crate::host::cgroup::{self, flat_keyed as value};

/// Clock ticks of `/proc/<pid>/stat` in a second: `USER_HZ`, a part of Linux's interface.
const TICKS_PER_SECOND: u64 = 100;

/// Bytes of a page in `/proc/<pid>/statm`, on x86.
const PAGE_BYTES: u64 = 4096;

/// Reads the current usage. `cgroups` are the VMM's own. The call blocks for a moment.
pub(super) fn read(root: &Path, cgroups: &[PathBuf], pid: u32) -> HostUsage {
    let mut usage = HostUsage { at_ns: clock::now_ns(), ..HostUsage::default() };
    let file = |name: &str| cgroups.iter().find_map(|path| fs::read_to_string(path.join(name)).ok());
    let process = || process(Path::new("/proc"), pid);
    if cgroup::unified(root) {
        usage.cpu = unified_cpu(&file).unwrap_or_else(|| process().0);
        usage.memory = unified_memory(&file).unwrap_or_else(|| process().1);
        usage.memory.pressure = file("memory.pressure").map(|text| pressure(&text));
        usage.io_pressure = file("io.pressure").map(|text| pressure(&text));
    } else if v1(&file, &mut usage).is_none() {
        (usage.cpu, usage.memory) = process();
    }
    usage
}

type Files<'a> = &'a dyn Fn(&str) -> Option<String>;

/// CPU time and pressure, which every cgroup of v2 has (Documentation/admin-guide/cgroup-v2.rst of the
/// kernel: "This file exists whether the controller is enabled or not").
fn unified_cpu(file: Files<'_>) -> Option<CpuUsage> {
    let cpu = file("cpu.stat")?;
    let ns = |name| value(&cpu, name).saturating_mul(1000);
    Some(CpuUsage {
        usage_ns: ns("usage_usec"),
        user_ns: ns("user_usec"),
        system_ns: ns("system_usec"),
        periods: value(&cpu, "nr_periods"),
        throttled_periods: value(&cpu, "nr_throttled"),
        throttled_ns: ns("throttled_usec"),
        pressure: file("cpu.pressure").map(|text| pressure(&text)),
        nano_cores: None,
    })
}

/// Memory without its pressure; `None` for a cgroup without the controller.
fn unified_memory(file: Files<'_>) -> Option<MemoryUsage> {
    let memory_bytes = number(&file("memory.current")?)?;
    let memory = file("memory.stat")?;
    Some(MemoryUsage {
        usage: memory_bytes,
        usage_max: file("memory.peak").and_then(|text| number(&text)).unwrap_or(memory_bytes),
        anon: value(&memory, "anon"),
        file: value(&memory, "file"),
        inactive_file: value(&memory, "inactive_file"),
        kernel: value(&memory, "kernel"),
        mapped_file: value(&memory, "file_mapped"),
        swap: file("memory.swap.current").and_then(|text| number(&text)).unwrap_or(0),
        page_faults: value(&memory, "pgfault"),
        major_page_faults: value(&memory, "pgmajfault"),
        ..MemoryUsage::default()
    })
}

/// Documentation/admin-guide/cgroup-v1/{cpuacct,memory}.rst of the kernel.
fn v1(file: Files<'_>, usage: &mut HostUsage) -> Option<()> {
    let memory_bytes = number(&file("memory.usage_in_bytes")?)?;
    let memory = file("memory.stat")?;
    let cpu_ns = |name| file(name).and_then(|text| number(&text)).unwrap_or(0);
    usage.cpu = CpuUsage {
        usage_ns: number(&file("cpuacct.usage")?)?,
        user_ns: cpu_ns("cpuacct.usage_user"),
        system_ns: cpu_ns("cpuacct.usage_sys"),
        ..CpuUsage::default()
    };
    usage.memory = MemoryUsage {
        usage: memory_bytes,
        usage_max: file("memory.max_usage_in_bytes").and_then(|text| number(&text)).unwrap_or(memory_bytes),
        anon: value(&memory, "total_rss"),
        file: value(&memory, "total_cache"),
        inactive_file: value(&memory, "total_inactive_file"),
        mapped_file: value(&memory, "total_mapped_file"),
        page_faults: value(&memory, "total_pgfault"),
        major_page_faults: value(&memory, "total_pgmajfault"),
        ..MemoryUsage::default()
    };
    Some(())
}

/// proc_pid_stat(5) and proc_pid_statm(5). A missing process has used nothing.
fn process(proc: &Path, pid: u32) -> (CpuUsage, MemoryUsage) {
    let dir = proc.join(pid.to_string());
    let stat = fs::read_to_string(dir.join("stat")).unwrap_or_default();
    // The name may hold spaces and brackets. The text after it begins with field 3.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let ns = |ticks: u64| ticks.saturating_mul(1_000_000_000 / TICKS_PER_SECOND);
    let (user, system) = (ns(field(14)), ns(field(15)));
    let cpu = CpuUsage {
        usage_ns: user.saturating_add(system),
        user_ns: user,
        system_ns: system,
        ..CpuUsage::default()
    };
    let statm = fs::read_to_string(dir.join("statm")).unwrap_or_default();
    let pages = |at: usize| statm.split_whitespace().nth(at).and_then(|text| text.parse::<u64>().ok());
    let bytes = |at| pages(at).unwrap_or(0).saturating_mul(PAGE_BYTES);
    let (resident, shared) = (bytes(1), bytes(2));
    let memory = MemoryUsage {
        usage: resident,
        usage_max: resident,
        anon: resident.saturating_sub(shared),
        page_faults: field(10),
        major_page_faults: field(12),
        ..MemoryUsage::default()
    };
    (cpu, memory)
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// `some avg10=0.12 avg60=0.00 avg300=0.00 total=345` and the same for `full` (psi.rst).
fn pressure(text: &str) -> Pressure {
    let stall = |kind: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' ')).unwrap_or_default();
        let value = |key: &str| line.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        let average = |key| value(key).and_then(|text| text.parse().ok()).unwrap_or(0.0);
        Stall {
            total_ns: value("total").and_then(number).unwrap_or(0).saturating_mul(1000),
            avg10: average("avg10"),
            avg60: average("avg60"),
            avg300: average("avg300"),
        }
    };
    Pressure { some: stall("some"), full: stall("full") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(dir).unwrap();
        for (name, text) in files {
            fs::write(dir.join(name), text).unwrap();
        }
    }

    /// Above the kernel's largest process id.
    const NOBODY: u32 = 5_000_000;

    #[test]
    fn a_cgroups_figures_are_the_pods() {
        let root = tempfile::tempdir().unwrap();
        let cgroup = root.path().join("pod");
        write(root.path(), &[("cgroup.controllers", "cpu memory")]);
        write(
            &cgroup,
            &[
                ("cpu.stat", "usage_usec 30\nuser_usec 20\nsystem_usec 10\n"),
                ("memory.current", "1000\n"),
                ("memory.stat", "anon 600\ninactive_file 300\npgfault 7\n"),
                ("io.pressure", "some avg10=1.50 avg60=0.00 avg300=0.00 total=8\nfull avg10=0.00 total=2\n"),
            ],
        );
        let usage = read(root.path(), &[cgroup], NOBODY);
        assert!(usage.at_ns > 0);
        assert_eq!((usage.cpu.usage_ns, usage.cpu.user_ns), (30_000, 20_000));
        assert_eq!((usage.memory.working_set(), usage.memory.anon, usage.memory.page_faults), (700, 600, 7));
        let pressure = usage.io_pressure.unwrap();
        assert_eq!((pressure.some.total_ns, pressure.full.total_ns), (8000, 2000));
        assert!((pressure.some.avg10 - 1.5).abs() < f64::EPSILON);
    }

    #[test]
    fn on_a_v1_node_each_hierarchy_has_its_part() {
        let root = tempfile::tempdir().unwrap();
        let (cpu, memory) = (root.path().join("cpu"), root.path().join("memory"));
        write(&cpu, &[("cpuacct.usage", "5000\n")]);
        let stat = "inactive_file 1\ntotal_inactive_file 300\ntotal_rss 600\n";
        write(&memory, &[("memory.usage_in_bytes", "1000\n"), ("memory.stat", stat)]);
        let usage = read(root.path(), &[cpu, memory], NOBODY);
        assert_eq!((usage.cpu.usage_ns, usage.memory.working_set(), usage.memory.anon), (5000, 700, 600));
    }

    #[test]
    fn a_cgroup_without_controllers_has_its_time_and_pressure_and_only_memory_is_the_processs() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &[("cgroup.controllers", "cpu")]);
        let stalled = "some avg10=0.00 avg60=0.00 avg300=0.00 total=8\n";
        let pressure = ["cpu.pressure", "memory.pressure", "io.pressure"].map(|file| (file, stalled));
        write(&root.path().join("pod"), &pressure);
        write(&root.path().join("pod"), &[("cpu.stat", "usage_usec 30\nuser_usec 20\nsystem_usec 10\n")]);
        let usage = read(root.path(), &[root.path().join("pod")], std::process::id());
        assert!(usage.memory.usage > 0 && usage.memory.page_faults > 0, "{usage:?}");
        assert_eq!((usage.cpu.usage_ns, usage.cpu.user_ns), (30_000, 20_000));
        for pressure in [usage.cpu.pressure, usage.memory.pressure, usage.io_pressure] {
            assert_eq!(pressure.unwrap().some.total_ns, 8000);
        }
    }

    #[test]
    fn without_a_cgroup_the_process_itself_is_looked_at() {
        let root = tempfile::tempdir().unwrap();
        for controllers in [false, true] {
            if controllers {
                write(root.path(), &[("cgroup.controllers", "cpu")]);
            }
            let usage = read(root.path(), &[root.path().join("pod")], std::process::id());
            assert!(usage.memory.usage > 0 && usage.memory.page_faults > 0, "{usage:?}");
            assert_eq!(usage.cpu.usage_ns, usage.cpu.user_ns + usage.cpu.system_ns);
            assert_eq!((usage.cpu.pressure, usage.io_pressure), (None, None));
        }
    }

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let proc = tempfile::tempdir().unwrap();
        let fields: Vec<String> = (4..=30).map(|field| field.to_string()).collect();
        let stat = format!("7 (a) b (c) S {}\n", fields.join(" "));
        write(&proc.path().join("7"), &[("stat", &stat), ("statm", "90 10 4 0 0 0 0\n")]);
        let (cpu, memory) = process(proc.path(), 7);
        assert_eq!((cpu.user_ns, cpu.system_ns), (140_000_000, 150_000_000));
        assert_eq!((memory.page_faults, memory.major_page_faults), (10, 12));
        assert_eq!((memory.usage, memory.anon), (40_960, 24_576));
    }

    #[test]
    fn a_process_that_is_gone_has_used_nothing() {
        let root = tempfile::tempdir().unwrap();
        let usage = read(root.path(), &[], NOBODY);
        assert_eq!((usage.cpu, usage.memory), (CpuUsage::default(), MemoryUsage::default()));
    }
}
