"""The tests' requirements for this host, checked before the first of them starts."""

import os
import pathlib
import re
import shutil
import subprocess

from nodes import MEMORY_MIB
from programs import ROOT

# A lane keeps one processor busy. If processors are the bound, more than two nodes gain nothing, and take
# memory.
LANES_MAX = 2
# MiB for everything beside the nodes.
BESIDE_MIB = 2048
# MiB of files in the temporary directory.
TEMPORARY_MIB = 2048


class Missing(Exception):
    """The host lacks something. The message has the remedy."""


def lanes():
    """As many lanes as there are processors, and memory for their nodes."""
    return max(1, min(LANES_MAX, os.cpu_count() or 1, (_memory_mib() - BESIDE_MIB) // MEMORY_MIB))


def check():
    """Refuses a host without the programs or space for the tests."""
    named = subprocess.run([ROOT / "tests/deps", "--check"], stderr=subprocess.PIPE, text=True, check=False)
    if named.returncode:
        raise Missing(named.stderr.strip())
    memory = _memory_mib()
    if memory < MEMORY_MIB + BESIDE_MIB:
        raise Missing(f"this machine has {memory} MiB of memory available, and a node and what runs beside it take {MEMORY_MIB + BESIDE_MIB}")
    place = os.environ.get("TMPDIR", "/tmp")
    room = shutil.disk_usage(place).free >> 20
    if room < TEMPORARY_MIB:
        raise Missing(f"{place} has {room} MiB free, and tests take up to {TEMPORARY_MIB}; make room, or set TMPDIR")


def _memory_mib():
    """Available memory (proc_meminfo(5))."""
    text = pathlib.Path("/proc/meminfo").read_text()
    return int(re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.M)[1]) >> 10
