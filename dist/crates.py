"""The crates linked into shipped programs, as cargo resolves Cargo.lock. Crates only for builds or tests are left out."""

import json
import subprocess

PROGRAMS = ("podvisor", "podvisor-vmm", "podvisor-agent")


def metadata():
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def uses(graph):
    """The ids of the direct dependencies of each package, by its id."""
    of_kind = lambda node: (dep for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"]))  # noqa: E731
    return {node["id"]: sorted(dep["pkg"] for dep in of_kind(node)) for node in graph["nodes"]}


def linked(graph, roots):
    """The ids of these packages and of everything linked into them."""
    all_uses, found, pending = uses(graph), set(), list(roots)
    while pending:
        package = pending.pop()
        if package not in found:
            found.add(package)
            pending += all_uses[package]
    return found
