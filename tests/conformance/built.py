"""Collects what a runner passes to its session in the node: the stand-in images' programs and what the build made. Starts nothing."""

import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def built():
    """The programs are those of PODVISOR_E2E_BIN and PODVISOR_E2E_GUEST_IMAGE, by default the release build's."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return {
        "files": subprocess.run([HERE / "files"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip(),
        "binaries": os.environ.get("PODVISOR_E2E_BIN", str(target / "release")),
        "guest_image": os.environ.get("PODVISOR_E2E_GUEST_IMAGE", str(ROOT / "target/guest-image")),
    }
