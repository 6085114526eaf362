"""A program at its own terminal, with simulated typing and reading."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

# The software node is slow.
LIMIT = 300


class Terminal:
    """A command at a terminal; all its output is kept."""

    def __init__(self, command, environment, rows=33, columns=101):
        self.master, slave = pty.openpty()
        self.resize(rows, columns, notify=False)
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self.shown = ""

    def resize(self, rows, columns, notify=True):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if notify:
            self.process.send_signal(signal.SIGWINCH)

    def type(self, text):
        os.write(self.master, text.encode())

    def until(self, text):
        """Waits until the text is shown."""
        deadline = time.monotonic() + LIMIT
        while text not in self.shown:
            if time.monotonic() > deadline or not self._look(1):
                raise AssertionError(f"{text!r} is not shown, but: {self.shown[-2000:]!r}")

    def ended(self):
        """Waits for the program's end; returns its exit code."""
        while self._look(LIMIT):
            pass
        return self.process.wait(LIMIT)

    def kill(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def _look(self, seconds):
        """Reads the available output; returns true if more may come."""
        if not select.select([self.master], [], [], seconds)[0]:
            return self.process.poll() is None
        try:
            shown = os.read(self.master, 65536)
        except OSError:
            # The other side is closed.
            return False
        self.shown += shown.decode(errors="replace")
        return bool(shown)
