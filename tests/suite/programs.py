"""Builds the programs of the tests, and finds them in cargo's output."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAGE = ROOT / ".ci/stage"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


class BuildFailed(Exception):
    """Cargo has said why."""


class Programs:
    """The test programs of one call of cargo."""

    def __init__(self, messages):
        self.found = []
        for line in messages.splitlines():
            message = json.loads(line)
            if message.get("profile", {}).get("test") and message.get("executable"):
                self.found.append((message["package_id"], message["target"], message["executable"]))

    def named(self, name):
        """The one integration test of this name."""
        paths = [path for _, target, path in self.found if target["kind"] == ["test"] and target["name"] == name]
        if len(paths) != 1:
            raise BuildFailed(f"cargo has built {len(paths)} test programs named {name}")
        return paths[0]

    def of_package(self, directory):
        """The integration tests of the package in this directory."""
        paths = [path for package, target, path in self.found if target["kind"] == ["test"] and f"/{directory}#" in package]
        if not paths:
            raise BuildFailed(f"cargo has built no test program of {directory}")
        return paths


def build(*arguments):
    """Builds test programs."""
    command = [STAGE, "tests-build", "cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise BuildFailed("the test programs did not build")
    return Programs(done.stdout)
