"""Processor seconds of a process and of all below it, as the kernel counts them."""

import os
import pathlib

TICKS = os.sysconf("SC_CLK_TCK")


def seconds_of(root):
    """Of running and of reaped children. Zero if the process is gone."""
    parents, ticks = {}, {}
    for process in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = process.read_text()
        except OSError:
            # It ended meanwhile.
            continue
        pid = int(process.parent.name)
        # Behind the name in brackets: ppid is field 4; utime, stime, cutime and cstime are fields 14 to 17
        # (proc_pid_stat(5)).
        fields = stat.rpartition(")")[2].split()
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))

    def is_below(pid):
        while pid != root and pid in parents:
            pid = parents[pid]
        return pid == root

    return sum(ticks[pid] for pid in ticks if is_below(pid)) / TICKS
