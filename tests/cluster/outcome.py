"""The outcome of a check, and its comparisons. Shared with the clients' tests."""

import subprocess
from http.client import HTTPException


class Skipped(Exception):
    """A check impossible with these programs, and the missing feature."""


def same(what, expected, seen):
    if expected != seen:
        raise AssertionError(f"{what}: {seen!r} instead of {expected!r}")


def outcome(check, *arguments):
    """Runs a check. If it fails, the others still run."""
    try:
        check(*arguments)
    except Skipped as why:
        return f"skipped: {why}"
    except (AssertionError, OSError, HTTPException, LookupError, ValueError, subprocess.SubprocessError) as error:
        return f"FAILED: {type(error).__name__ if not isinstance(error, AssertionError) else ''}{error}"
    return "passed"
