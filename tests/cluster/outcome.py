"""How a check ends, and what it compares. Shared with the clients' tests."""

import subprocess
from http.client import HTTPException


class Skipped(Exception):
    """A check that the programs at hand cannot pass, with what they lack."""


def same(what, expected, seen):
    if expected != seen:
        raise AssertionError(f"{what}: {seen!r} instead of {expected!r}")


def outcome(check, *arguments):
    """Runs a check. A check that fails does not keep others from being run."""
    try:
        check(*arguments)
    except Skipped as why:
        return f"skipped: {why}"
    except (AssertionError, OSError, HTTPException, LookupError, ValueError, subprocess.SubprocessError) as error:
        return f"FAILED: {type(error).__name__ if not isinstance(error, AssertionError) else ''}{error}"
    return "passed"
