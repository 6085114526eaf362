"""The end-to-end tests not yet given to a node. Hands them out in parts, the longest first, so all lanes end
at about the same time."""

import threading

# Tests of several minutes. If one begins last, it keeps the other lane waiting.
LONGEST = (
    "steps::every_step_killed",
    "random_work",
    "nested::another",
    "logs::",
    "many::",
    "build_tools::",
    "sealed_images::",
    "state_disk::",
    "verified_files::",
    "package::",
    "node_image::",
)
# Fewest tests of a part, because its process has its own registry; and a part's share of the remaining tests.
# Parts shrink, so the last ones are short.
PART_MIN = 3
SHARE = 8


class Parts:
    """Each round has each test once. A part is of one round, so no part has a test twice."""

    def __init__(self, tests, rounds=1):
        is_long = lambda test: any(name in test for name in LONGEST)  # noqa: E731
        self.long = [[test] for _ in range(rounds) for test in tests if is_long(test)]
        self.short = [[test for test in tests if not is_long(test)] for _ in range(rounds)]
        self.lock = threading.Lock()

    def take(self):
        """The next part, or an empty one."""
        with self.lock:
            if self.long:
                return self.long.pop(0)
            self.short = [left for left in self.short if left]
            if not self.short:
                return []
            left = self.short[0]
            count = max(PART_MIN, len(left) // SHARE)
            part, self.short[0] = left[:count], left[count:]
            return part
