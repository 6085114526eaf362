"""Two lanes, for two processors: each takes one job after another, and end-to-end tests when no job is left.
So neither is idle before the last test. Mostly waiting jobs run beside them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import needs
from nodes import Lane
from outcome import Outcome

# Number of slowest tests shown at the end.
SHOWN = 20
# Last lines shown of a job that failed without a failed test.
LINES_OF_BROKEN = 20


class Lanes:
    """The remaining work, and the outcome."""

    def __init__(self, jobs, binary, tests, busy=False):
        self.binary, self.tests, self.busy = binary, tests, busy
        self.beside = [job for job in jobs if job.beside]
        self.jobs = [job for job in jobs if not job.beside]
        self.lock = threading.Lock()
        # End-to-end tests begin after the jobs with their input have ended.
        self.needed = sum(job.needed_by is not None for job in self.jobs)
        self.ready = threading.Condition(self.lock)
        self.outcome = Outcome()
        self.done = []
        # (job, output) of jobs that failed without a failed test.
        self.broken = []

    def run(self):
        """Runs everything, and returns the outcome."""
        lanes = needs.lanes()
        with ThreadPoolExecutor(lanes + len(self.beside)) as pool:
            work = [pool.submit(self._lane) for _ in range(lanes)]
            work += [pool.submit(self._run_job, job) for job in self.beside]
        # A broken lane has lost its tests, and must not look like an empty one.
        for done in work:
            done.result()
        return self.outcome

    def _lane(self):
        while job := self._take():
            self._run_job(job)
        with self.lock:
            self.ready.wait_for(lambda: not self.needed)
        lane = Lane(self.binary, self.tests, self.busy)
        lane.run()
        with self.lock:
            self.outcome += lane.outcome()
            self.done += lane.done

    def _take(self):
        with self.lock:
            return self.jobs.pop(0) if self.jobs else None

    def _run_job(self, job):
        try:
            output, outcome = job.run()
            with self.lock:
                print(f"== {job.title}\n{output}", end="", flush=True)
                self.outcome += outcome
                if outcome.broken:
                    self.broken.append((job, output))
        finally:
            # In any case: nothing waits for an ended job.
            with self.lock:
                self.needed -= job.needed_by is not None
                self.ready.notify_all()

    def report(self):
        """Prints the slowest end-to-end tests, the failed ones, and failed jobs."""
        if self.done:
            print("== end-to-end tests that took longest: seconds by the clock, and of the processors")
        for test, _, seconds, processor in sorted(self.done, key=lambda done: -done[2])[:SHOWN]:
            print(f"{seconds:7.1f} {processor:7.1f}  {test}")
        for test in [test for test, passed, _, _ in self.done if not passed]:
            print(f"e2e: failed: {test}")
        # Their counts say nothing, so the reason must stand beside the total.
        for job, output in self.broken:
            print(f"{job.name}: failed without a failed test; its last lines:", *output.splitlines()[-LINES_OF_BROKEN:], sep="\n  ")
