"""Outcome of tests: counts, and the names of failed ones. Reads the closing lines of cargo's test programs
and of nextest."""

import dataclasses
import re

# libtest's closing line, and the one of the project's own checks in the same form.
CLOSING = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
# As nextest does: `Summary [  12.345s] 2228 tests run: 2226 passed (1 slow), 2 failed, 3 skipped`.
SUMMARY = re.compile(r"^\s*Summary \[.*?\]\s+[\d/]+ tests? run: (.*)$")


@dataclasses.dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    # A job failed without a failed test.
    broken: bool = False

    def __add__(self, other):
        return Outcome(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped, self.broken or other.broken
        )

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    @property
    def good(self):
        return self.passed > 0 and not self.failed and not self.broken


def of(text, status):
    """The outcome of a job with this output and status."""
    total = Outcome()
    for line in text.splitlines():
        total += _of_line(line)
    # The job's status counts, too: a program without its closing line has failed.
    total.broken = status != 0 and not total.failed
    return total


def _of_line(line):
    if found := CLOSING.match(line):
        return Outcome(*map(int, found.groups()))
    if found := SUMMARY.match(line):
        count = lambda word: sum(int(number) for number in re.findall(rf"(\d+) {word}", found[1]))  # noqa: E731
        return Outcome(count("passed"), count("failed") + count("timed out") + count("exec failed"), count("skipped"))
    return Outcome()
