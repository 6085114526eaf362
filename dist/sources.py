"""What the packages say of their sources: the workspace's version, and when the sources are from."""

import os
import pathlib
import subprocess
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]


def version():
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def seconds():
    """The commit's time, unless SOURCE_DATE_EPOCH names one: the same sources make the same files."""
    commit = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return int(os.environ.get("SOURCE_DATE_EPOCH") or commit or time.time())
