"""All tests except the end-to-end tests, as jobs: one command each. Most of them keep one processor busy. A
job's output is printed as a whole after its end, because jobs run in parallel."""

import os
import pathlib
import shlex
import subprocess

import outcome
from nodes import NODE, NODE_FAILED
from programs import ROOT, STAGE

NODE_TRIES = 3
# Packages with tests against the kernel: on a host without root, these skip themselves with a message.
PRIVILEGED = ("runtime/net", "runtime/erofs", "agent/container")


class Job:
    """A command with a name, also the name of its stage."""

    def __init__(self, name, title, command, in_node=False, beside=False, needed_by=None):
        self.name, self.title, self.command = name, title, command
        self.in_node = in_node
        # True if the job waits most of the time, and so needs no lane.
        self.beside = beside
        # The module of end-to-end tests using the job's output.
        self.needed_by = needed_by

    def is_needed_by(self, tests):
        return self.needed_by is not None and any(test.startswith(f"{self.needed_by}::") for test in tests)

    def run(self):
        """The job's output and outcome."""
        for _ in range(NODE_TRIES if self.in_node else 1):
            done = subprocess.run(
                [STAGE, self.name, *self.command], cwd=ROOT, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
            )  # fmt: skip
            if done.returncode != NODE_FAILED:
                break
        return done.stdout, outcome.of(done.stdout, done.returncode)


def nextest(*arguments):
    """nextest, put in the cache by `make deps` if it is not installed."""
    cache = pathlib.Path(os.environ.get("PODVISOR_CACHE") or pathlib.Path.home() / ".cache/podvisor")
    kept = sorted(cache.glob("cargo-nextest-*/bin/cargo-nextest"))
    program = [str(kept[-1]), "nextest"] if kept else ["cargo", "nextest"]
    return [*program, *arguments]


def parity():
    """A few random containers, compared with runc's. `make soak` has more of them, and others each time."""
    binaries = os.environ["PODVISOR_E2E_BIN"]
    program = [f"{binaries}/parity", "--bin", binaries, "--guest-image", os.environ["PODVISOR_E2E_GUEST_IMAGE"]]
    return [NODE, *program, "--no-table", "--generated", "12"]


def packages():
    """The jobs for making and checking packages."""
    return [
        Job("deb-tests", "the Debian package", ["tests/deb/run"], needed_by="package"),
        Job("oci-tests", "the image that installs on nodes", ["tests/oci/run"], needed_by="node_image"),
    ]


def all_jobs(programs):
    """The jobs, in the order of their starts: packages first, because end-to-end tests need them; then the
    longest."""
    # With the features of the whole workspace, since cargo compiles a crate for each set of features.
    unit = nextest("run", "--workspace", "--filterset", "not binary_id(tests-e2e::e2e)")
    privileged = [path for package in PRIVILEGED for path in programs.of_package(package)]
    lines = [f"{shlex.quote(path)} --test-threads=1 || status=1" for path in privileged]
    in_one_node = [NODE, "bash", "-c", f"status=0; {'; '.join(lines)}; exit $status"]
    kernels = [kernel for kernel in ("small", "full") if kernel == "small" or (ROOT / "target/guest-image/vmlinux-full").exists()]
    return [
        *packages(),
        Job("unit-tests", "on this host: unit tests, and the VMM on bare KVM", unit, beside=True),
        Job("rpm-tests", "the RPM package", ["tests/rpm/run"]),
        Job("install-tests", "an installation into an empty tree, and the tar file of it", ["tests/install/run"]),
        Job("chart-tests", "the Helm chart", ["tests/chart/run"]),
        *(
            Job("kernel-tests", f"in a node: the {kernel} guest kernel", ["guest-image/kernel/test", kernel], in_node=True)
            for kernel in kernels
        ),
        Job("parity-tests", "in a node: random containers, here and with runc", parity(), in_node=True),
        Job("privileged-tests", "in a node: networks, images and containers against the kernel", in_one_node, in_node=True),
    ]
