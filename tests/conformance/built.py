"""Collects a runner's input for its session in the node: the stand-in images' programs and the build's
output. Starts nothing."""

import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def built(*programs):
    """The programs are those of PODVISOR_E2E_BIN and PODVISOR_E2E_GUEST_IMAGE, by default the release
    build's. Ends the runner if one of them is missing: otherwise the session would notice minutes later, in
    the node."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    binaries = pathlib.Path(os.environ.get("PODVISOR_E2E_BIN", target / "release"))
    missing = [program for program in ("podvisor", "podvisor-vmm", "tests-conformance", *programs) if not os.access(binaries / program, os.X_OK)]
    if missing:
        raise SystemExit(f"{binaries} lacks {', '.join(missing)}: .ci/build -p tests-e2e -p tests-conformance --bins")
    return {
        "files": subprocess.run([HERE / "files"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip(),
        "binaries": str(binaries),
        "guest_image": os.environ.get("PODVISOR_E2E_GUEST_IMAGE", str(ROOT / "target/guest-image")),
    }
