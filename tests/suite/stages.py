"""Records this process's own stages, in the file of `.ci/stage`."""

import os
import time

from programs import ROOT

RECORD = ROOT / "target/stages"


def waited(name, process, begun):
    """Waits for a process started at this time of the clock, and records the time of it and its children.
    Returns its status."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    RECORD.parent.mkdir(exist_ok=True)
    # A line is written at once, so stages may run in parallel.
    with open(RECORD, "a", encoding="ascii") as record:
        record.write(f"{name} {time.monotonic() - begun:.3f} {usage.ru_utime:.3f} {usage.ru_stime:.3f}\n")
    return process.returncode
