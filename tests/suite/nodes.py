"""A lane's end-to-end tests, in one node after another. A node with one CPU, because QEMU's TCG is not sound
where KVM's own kernel patches code on one emulated CPU while another runs it (tests/node/hold.py).

    start a node ─► hand out a part ─► tests end, one by one ─► the next part … ─► none left: the node ends
                        ▲                   │
                        │                   ├─ one fails: what it left is in this node; the next part has a new one,
                        │                   │  and so has what fails after it in this part
                        ├── a new node ─────┼─ none ends for long: the test has failed; the others go on
                        └───────────────────┴─ the node dies: the test is run again, and has failed if nodes die in it again and again

A node dies if its kernel panics. On sound hardware no test can cause this, so it says nothing about the test.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

import processors
import stages
from outcome import Outcome
from programs import ROOT

IN_NODE = pathlib.Path(__file__).resolve().with_name("in_node")
NODE = ROOT / "tests/node/run"
# Its status if the node itself failed. This says nothing about the command in it.
NODE_FAILED = 125
MEMORY_MIB = 4096
# Seconds without an ended test until the running one has failed. The longest takes a tenth of this; a soak
# takes hours.
HUNG = None if os.environ.get("PODVISOR_E2E_LOAD") else 1500
# Most nodes dying during one and the same test.
DEATHS_MAX = 3
FINISHED = re.compile(r"^test (\S+) \.\.\. (ok|FAILED|ignored)$")
PART_ENDED = re.compile(r"^part \d+ ended$")


class Watch:
    """Ends a node with a hanging test, and measures each test's time."""

    def __init__(self, node):
        self.node = node
        self.hung = False
        self.seconds, self.processor = time.monotonic(), 0.0
        self._arm()

    def _arm(self):
        self.timer = threading.Timer(HUNG, self._end_node) if HUNG else None
        if self.timer:
            self.timer.daemon = True
            self.timer.start()

    def lap(self):
        """A test has ended, or a part has begun. Returns the seconds since the last lap, by the clock and of
        the processors."""
        self.end()
        seconds, processor = time.monotonic(), processors.seconds_of(self.node.pid)
        lap = (seconds - self.seconds, processor - self.processor)
        self.seconds, self.processor = seconds, processor
        self._arm()
        return lap

    def end(self):
        if self.timer:
            self.timer.cancel()

    def _end_node(self):
        self.hung = True
        self.node.terminate()


class Lane:
    """Runs tests until none is left."""

    def __init__(self, binary, tests, busy):
        self.binary, self.tests, self.busy = binary, tests, busy
        self.pending = []
        # (test, passed, seconds by the clock, seconds of the processors)
        self.done = []
        self.deaths = {}

    def run(self):
        while self.pending or self._take():
            self._run_node()

    def outcome(self):
        passed = sum(1 for _, passed, _, _ in self.done if passed)
        return Outcome(passed, len(self.done) - passed)

    def _take(self):
        self.pending = self.tests.take()
        return self.pending

    def _run_node(self):
        with tempfile.TemporaryDirectory(prefix="podvisor-parts-") as parts:
            environment = {**os.environ, "PODVISOR_NODE_MEMORY": str(MEMORY_MIB), "PODVISOR_NODE_OUT": parts}
            begun = time.monotonic()
            node = subprocess.Popen(
                [NODE, IN_NODE, parts, str(int(self.busy)), self.binary], env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            )  # fmt: skip
            watch = Watch(node)
            lines = self._attend(node, watch, pathlib.Path(parts))
            status = stages.waited("e2e-tests", node, begun)
            watch.end()
            self._keep_calls(pathlib.Path(parts) / "calls")
        if watch.hung and self.pending:
            self._fail(f"{self.pending[0]} hangs; no test has ended in {HUNG} s", lines, self.pending[:1])
        elif status == NODE_FAILED and self.pending:
            self._died(lines)
        elif status != 0:
            self._fail(f"the node ended with status {status}", lines, self.pending)

    def _keep_calls(self, calls):
        """Appends the node's system calls to the file that the environment names."""
        kept = os.environ.get("PODVISOR_E2E_CALLS")
        if kept and calls.exists():
            with open(kept, "a", encoding="utf-8") as file:
                file.write(calls.read_text())

    def _attend(self, node, watch, parts):
        """Hands out parts and notes ended tests. Returns the lines of the last part."""
        count, failed, lines, again = 0, False, [], []
        self._hand_out(parts, count, self.pending)
        for line in node.stdout:
            lines.append(line)
            if line.startswith("running "):
                # The time of the node's start or the last part's end belongs to no test.
                watch.lap()
            elif found := FINISHED.match(line.rstrip("\n")):
                if failed and found[2] == "FAILED":
                    print(f"test {found[1]} ... failed behind another; it runs again in a new node", flush=True)
                    self.pending.remove(found[1])
                    again.append(found[1])
                    watch.lap()
                    continue
                failed |= found[2] == "FAILED"
                self._finished(found[1], found[2], *watch.lap())
            elif PART_ENDED.match(line):
                if self.pending:
                    # Its other interrupted tests are run again.
                    self._fail(f"the test program ended in {self.pending[0]}", lines, self.pending[:1])
                    failed = True
                elif failed:
                    sys.stdout.write("".join(lines))
                count, lines = count + 1, []
                # VMs and networks of a failed test are still there. The next tests have a new node.
                if not failed:
                    self._take()
                self._hand_out(parts, count, [] if failed else self.pending)
        self.pending += again
        return lines

    def _hand_out(self, parts, count, tests):
        new = parts / "new"
        new.write_text("".join(f"{test}\n" for test in tests))
        new.rename(parts / f"part-{count}")

    def _finished(self, test, word, seconds, processor):
        print(f"test {test} ... {word} ({seconds:.0f} s, cpu {processor:.0f})", flush=True)
        if test in self.pending:
            self.pending.remove(test)
        self.done.append((test, word != "FAILED", seconds, processor))

    def _fail(self, why, lines, tests):
        """Tests without a report have failed."""
        print(f"e2e: {why}:", flush=True)
        sys.stdout.write("".join(lines))
        for test in list(tests):
            self.pending.remove(test)
            self.done.append((test, False, 0.0, 0.0))

    def _died(self, lines):
        test = self.pending[0]
        deaths = self.deaths[test] = self.deaths.get(test, 0) + 1
        print(f"e2e: a node died during {test} ({deaths} of {DEATHS_MAX}):", *lines[-3:], flush=True)
        if deaths == DEATHS_MAX:
            self._fail(f"nodes die during {test}", lines, [test])
