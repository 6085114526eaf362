"""A user's streams to a running container, by any client. Each check states its claim and raises if it is
false.

A client gives commands, as lists: `exec(name, flags, line)`, `attach(name, flags)`, `forward(name, port)`,
`logs(name)`, and with `copy_in`/`copy_out` files. Three pods are running: `web` serves a file on its
loopback's port 8080, `shell` is a shell at a terminal, `ticker` writes a line a second, twenty of them, after
somebody made /go.
"""

import hashlib
import os
import pathlib
import re
import subprocess
import threading
import urllib.request

from outcome import outcome, same
from terminal import Terminal

# The software node is slow.
LIMIT = 300
BYTES = 3_000_000
CONNECTIONS = 8


def run(client, command, **options):
    return subprocess.run(command, env=client.environment, capture_output=True, timeout=LIMIT, **options)


def output_is_whole_and_the_code_is_reported(client, _):
    done = run(client, client.exec("web", [], f"head -c {BYTES} /dev/zero; echo oops >&2; exit 3"))
    # A client may say itself that its connection broke. It is worse if it believes it has everything.
    same(f"bytes of stdout, with status {done.returncode} and {done.stderr[-300:]!r}", BYTES, done.stdout.count(b"\0"))
    if b"oops\n" not in done.stderr or not (done.returncode == 3 or b"exit code 3" in done.stderr or b"exit status 3" in done.stderr):
        raise AssertionError(f"{done.returncode}: {done.stderr!r}")


def input_arrives_and_its_end_too(client, _):
    typed = os.urandom(BYTES)
    done = run(client, client.exec("web", ["-i"], "sha1sum"), input=typed)
    same("sum of the input", hashlib.sha1(typed).hexdigest(), done.stdout.decode().split(" ")[0])


def a_terminal_has_its_size_keys_and_code(client, _):
    terminal = Terminal(client.exec("web", ["-i", "-t"], "exec sh"), client.environment)
    terminal.until("# ")
    terminal.type("stty size\r")
    terminal.until("33 101")
    terminal.resize(20, 90)
    terminal.type("until stty size | grep '20 90'; do :; done\r")
    terminal.until("20 90\r")
    terminal.type("sleep 1000 || echo 'inter'rupted\r")
    terminal.until("sleep 1000")
    while not run(client, client.exec("web", [], "pidof sleep")).stdout.split()[1:]:
        pass
    terminal.type("\x03echo st'i'll here\r")
    terminal.until("still here")
    terminal.type("exit 0\r")
    same("code", 0, terminal.ended())


def an_attached_client_types_to_the_container_and_may_leave(client, _):
    first = Terminal(client.attach("shell", ["-i", "-t"]), client.environment)
    first.type("echo one-$((40 + 2))\r")
    first.until("one-42")
    first.kill()
    second = Terminal(client.attach("shell", ["-i", "-t"]), client.environment)
    second.type("echo two-$((40 + 3))\r")
    second.until("two-43")
    second.type("exit 0\r")
    same("code", 0, second.ended())


def ports_are_forwarded_many_at_once(client, _):
    with Forward(client, 8080) as forward:
        answers = []
        ask = lambda: answers.append(urllib.request.urlopen(f"http://127.0.0.1:{forward.port}/file", timeout=LIMIT).read())  # noqa: E731
        asking = [threading.Thread(target=ask) for _ in range(CONNECTIONS)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        same("answers", [b"forwarded\n"] * CONNECTIONS, answers)


def a_refused_port_is_reported(client, _):
    with Forward(client, 8081) as forward:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{forward.port}/file", timeout=LIMIT)
            raise AssertionError("nobody listens on 8081")
        except OSError:
            pass
        while "refused" not in forward.process.stderr.readline():
            if forward.process.poll() is not None:
                raise AssertionError("the refused port is not reported")


class Forward:
    """A client forwarding a port of `web` while it is open."""

    def __init__(self, client, port):
        self.process = subprocess.Popen(
            client.forward("web", port), env=client.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+) ->", line)
        if not found:
            raise AssertionError(f"forwarding: {line!r} {self.process.stderr.read()!r}")
        self.port = found[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def logs_are_followed_to_their_last_line(client, _):
    follow = subprocess.Popen(client.logs("ticker"), env=client.environment, stdout=subprocess.PIPE, text=True)
    same("making /go", 0, run(client, client.exec("ticker", [], "touch /go")).returncode)
    said = follow.communicate(timeout=LIMIT)[0].splitlines()
    same("lines", [f"tick {number}" for number in range(1, 21)], said)


def files_are_copied_both_ways(client, directory):
    sent, back = pathlib.Path(directory) / "sent", pathlib.Path(directory) / "back"
    sent.write_bytes(os.urandom(BYTES))
    for command in (client.copy_in(sent, "web", "/tmp/file"), client.copy_out("web", "/tmp/file", back)):
        done = run(client, command)
        same(f"{' '.join(map(str, command))}: {done.stderr.decode()!r}", 0, done.returncode)
    same("the file that came back", hashlib.sha1(sent.read_bytes()).hexdigest(), hashlib.sha1(back.read_bytes()).hexdigest())
    sent.unlink()
    back.unlink()


STREAMS = [
    output_is_whole_and_the_code_is_reported, input_arrives_and_its_end_too, a_terminal_has_its_size_keys_and_code,
    ports_are_forwarded_many_at_once, a_refused_port_is_reported,
]  # fmt: skip


def all_of(client, directory, checks, transport):
    """Runs the checks; returns how many failed."""
    failed = 0
    for check in checks:
        said = outcome(check, client, directory)
        failed += said.startswith("FAILED")
        print(f"{client.name}, {transport}: {check.__name__}: {said}", flush=True)
    return failed
