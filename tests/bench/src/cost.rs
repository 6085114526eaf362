//! The cost of a process as its node's kernel counts it.

use anyhow::Context;

/// Cost of a process up to now.
pub(crate) struct Cost {
    /// Bytes given to write(2) and its like (proc_pid_io(5), `wchar`).
    pub(crate) written: u64,
    /// Clock ticks in user mode and in the kernel, including reaped children.
    pub(crate) ticks: u64,
}

impl Cost {
    pub(crate) fn of(pid: u32) -> anyhow::Result<Cost> {
        let io = std::fs::read_to_string(format!("/proc/{pid}/io"))?;
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")).context("no wchar")?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (_, fields) = stat.rsplit_once(") ").context("no fields")?;
        // Fields 14 to 17 (proc_pid_stat(5)); the state is the third.
        let ticks = fields.split(' ').skip(11).take(4).map(str::parse::<u64>);
        Ok(Cost { written: written.trim().parse()?, ticks: ticks.sum::<Result<u64, _>>()? })
    }

    pub(crate) fn since(&self, before: &Cost) -> Cost {
        Cost { written: self.written - before.written, ticks: self.ticks - before.ticks }
    }
}
