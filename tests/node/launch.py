"""Starts the software node, carries the command's output and exit status out of it, and ends it. One process,
no threads.

The node has no network device: it can reach nothing but itself. Every way out is a virtio-serial port on a
socket pair."""

import ctypes
import os
import pathlib
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time

import emulator
import request
from failure import NODE_FAILED, NodeError

MEMORY_MIB = int(os.environ.get("PODVISOR_NODE_MEMORY", "6144"))
# With two, TCG does not keep nested KVM's memory order: nodes and guests die now and then.
PROCESSORS = int(os.environ.get("PODVISOR_NODE_CPUS", "1"))
# A start takes six seconds on idle processors; a host slower than this limit is too slow for tests.
START_LIMIT_SECONDS = int(os.environ.get("PODVISOR_NODE_START_LIMIT", "240"))
# QEMU's TCG forgets a pending interrupt now and then: at the end of a nested guest's run, the CPU changes its
# set of requests without the devices' lock. If the timer's request is lost, no other follows, because only
# the timer's handler asks for the next: time stands still in the node. Any other interrupt repairs it, so the
# launcher interrupts a silent node.
NUDGE_SECONDS = 10
# A node reports once a second of its own clock. On a busy host, this may be a minute here. A node silent for
# longer than this limit is dead, not slow.
SILENCE_LIMIT_SECONDS = int(os.environ.get("PODVISOR_NODE_SILENCE_LIMIT", "300"))
MSIZE = 512 * 1024
CONSOLE_LINES = 40
# The repeated message of init.sh on the control port.
ALIVE = b"alive\n"


class Interrupted(Exception):
    """A signal asked this process to end."""

    def __init__(self, number):
        super().__init__()
        self.number = number


class Output:
    """Copies a port to a descriptor up to its final token."""

    def __init__(self, port, descriptor, token):
        self.port = port
        self.descriptor = descriptor
        self.token = token
        self.held = b""
        self.ended = False

    def take(self, data):
        self.held += data
        place = self.held.find(self.token)
        if place >= 0:
            self._write(self.held[:place])
            self.held = b""
            self.ended = True
            return
        # A token may be split between two reads: keep its possible beginning.
        keep = next((n for n in range(min(len(self.held), len(self.token) - 1), 0, -1) if self.token.startswith(self.held[-n:])), 0)
        self._write(self.held[: len(self.held) - keep])
        self.held = self.held[len(self.held) - keep :]

    def flush(self):
        self._write(self.held)
        self.held = b""

    def _write(self, data):
        while data:
            try:
                data = data[os.write(self.descriptor, data) :]
            except BlockingIOError:
                # Someone else made the caller's pipe non-blocking.
                time.sleep(0.005)


def run(node, command, icount):
    """The command's exit status, 128+n if a signal ended it there or asked us to end here."""
    begun = time.monotonic()
    _catch_signals()
    merged = _same_file(1, 2)
    token = secrets.token_hex(24)
    names = ("control", "out") if merged else ("control", "out", "err")
    ports = {name: socket.socketpair() for name in names}
    shared = _shared_directory()
    with tempfile.TemporaryDirectory(prefix="podvisor-node-") as scratch:
        scratch = pathlib.Path(scratch)
        _write_initramfs(scratch / "initramfs", node, command, icount, token, merged, shared)
        ends = {name: pair[1].fileno() for name, pair in ports.items()}
        argv = _qemu(node, scratch, ends, shared, icount)
        qemu = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                pass_fds=list(ends.values()), preexec_fn=_die_with_parent, start_new_session=True)
        for _, end in ports.values():
            end.close()
        try:
            return _attend(qemu, {name: pair[0] for name, pair in ports.items()}, token.encode(), begun, scratch / "console")
        except Interrupted as interrupted:
            return 128 + interrupted.number
        finally:
            qemu.kill()
            qemu.wait()
            if os.environ.get("PODVISOR_NODE_VERBOSE"):
                print(_tail(scratch / "console"), file=sys.stderr)


def _catch_signals():
    def interrupt(number, _frame):
        raise Interrupted(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, interrupt)


def _die_with_parent():
    """In the child: QEMU must not outlive a killed launcher. PR_SET_PDEATHSIG is 1."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _same_file(one, other):
    """Returns true if two descriptors are one file: then the node merges its streams, and their order is
    kept."""
    try:
        first, second = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


def _shared_directory():
    shared = os.environ.get("PODVISOR_NODE_OUT", "")
    if not shared:
        return None
    shared = os.path.abspath(shared)
    try:
        os.makedirs(shared, exist_ok=True)
    except OSError as error:
        raise NodeError(f"PODVISOR_NODE_OUT: {error}") from error
    return shared


def _write_initramfs(path, node, command, icount, token, merged, shared):
    settings = request.settings({
        "TOKEN": token,
        "MERGED": int(merged),
        "OUT": shared or "",
        "MSIZE": MSIZE,
        "MODULES": node.modules,
        "PYTHON": sys.executable,
        "HOLD": pathlib.Path(__file__).resolve().with_name("hold.py"),
        "UPPER_SIZE": f"{MEMORY_MIB * 3 // 4}m",
    })
    environment = request.passed_environment(os.environ)
    environment.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    environment["PODVISOR_NODE"] = "software"
    environment["PODVISOR_NODE_ICOUNT"] = str(int(icount))
    script = request.script(command, os.getcwd(), environment)
    # The kernel unpacks successive archives, the later over the earlier.
    path.write_bytes(node.initramfs.read_bytes() + request.archive({"settings": settings, "command": script}))


def _qemu(node, scratch, ends, shared, icount):
    kernel_line = (
        "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr no_timer_check tsc=reliable audit=0 "
        f"apparmor={int(bool(os.environ.get('PODVISOR_NODE_APPARMOR')))} "
        "random.trust_cpu=on raid=noautodetect i8042.noaux cryptomgr.notests rcupdate.rcu_expedited=1"
        # The others come when the kernel has patched itself for good (init.sh).
        " 8250.nr_uarts=1 pci=lastbus=0 maxcpus=1"
    )
    argv = [str(emulator.path()), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-M", "q35,usb=off,vmport=off,smbus=off,sata=off,hpet=off"]
    # TCG's cmpxchg16b sometimes leaves flags other than ZF wrong (RAX's own bits, seen in a guest's kernel
    # panic): kernels do not use it if the CPU does not announce it.
    argv += ["-bios", "qboot.rom", "-cpu", "EPYC,+svm,+x2apic,-cx16", "-m", str(MEMORY_MIB)]
    if icount:
        argv += ["-accel", "tcg,thread=single,tb-size=1024", "-icount", "shift=1,sleep=off", "-smp", "1"]
    else:
        argv += ["-accel", "tcg,thread=multi,tb-size=1024", "-smp", str(PROCESSORS)]
    argv += ["-kernel", str(node.kernel), "-initrd", str(scratch / "initramfs"), "-append", kernel_line]
    argv += ["-chardev", f"file,id=console,path={scratch}/console", "-serial", "chardev:console"]
    argv += _share("tree", "/", writable=False)
    if shared:
        argv += _share("out", shared, writable=True)
    disk = os.environ.get("PODVISOR_NODE_DISK")
    if disk:
        # The node's writes are in this host's memory when the node ends. They only need to outlive the node.
        argv += ["-drive", f"if=none,id=disk,format=raw,cache=unsafe,discard=unmap,file={disk.replace(',', ',,')}"]
        argv += ["-device", "virtio-blk-pci,drive=disk,serial=podvisor"]
    argv += ["-device", "virtio-rng-pci", "-device", "virtio-serial-pci,max_ports=8"]
    for name, descriptor in ends.items():
        argv += ["-chardev", f"socket,id={name},fd={descriptor}", "-device", f"virtserialport,chardev={name},name={name}"]
    return argv


def _share(tag, path, writable):
    # `remap` keeps inode numbers distinct if the tree crosses file systems; `none` does the same as
    # passthrough, but lets a non-root user share.
    options = "" if writable else ",readonly=on"
    escaped = path.replace(",", ",,")
    return ["-fsdev", f"local,id={tag},path={escaped},security_model=none,multidevs=remap{options}",
            "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


def _attend(qemu, ports, token, begun, console):
    outputs = {ports["out"]: Output(ports["out"], 1, token)}
    if "err" in ports:
        outputs[ports["err"]] = Output(ports["err"], 2, token)
    control, said, started, heard, nudged = ports["control"], b"", False, begun, begun
    selector = selectors.DefaultSelector()
    for port in (control, *outputs):
        selector.register(port, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select(NUDGE_SECONDS):
            data = _receive(key.fileobj)
            if not data:
                _lost(qemu, outputs.values(), console)
            if key.fileobj is control:
                said, heard = (said + data).replace(ALIVE, b""), time.monotonic()
            else:
                outputs[key.fileobj].take(data)
        now = time.monotonic()
        if not started and b"started\n" in said:
            started = True
            print(f"node: software node (QEMU TCG), start {now - begun:.1f} s", file=sys.stderr, flush=True)
        if said.endswith(b"\n") and b"exit " in said and all(output.ended for output in outputs.values()):
            return int(said.split(b"exit ")[1])
        if now - heard > (SILENCE_LIMIT_SECONDS if started else START_LIMIT_SECONDS):
            what = f"has stood still for {SILENCE_LIMIT_SECONDS} s" if started else f"did not start in {START_LIMIT_SECONDS} s"
            raise NodeError(f"the software node {what}\n{_tail(console)}")
        if started and now - max(heard, nudged) > NUDGE_SECONDS:
            nudged = now
            _nudge(control)


def _nudge(control):
    """Interrupts the node. If earlier input is still unread, it has already been interrupted."""
    try:
        control.send(b"\n", socket.MSG_DONTWAIT)
    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
        pass


def _receive(port):
    try:
        return port.recv(1 << 16)
    except ConnectionResetError:
        return b""


def _lost(qemu, outputs, console):
    """QEMU closed a port: it or the node's kernel is gone."""
    for output in outputs:
        output.flush()
    try:
        _, complaint = qemu.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        complaint = b""
    raise NodeError(f"the software node ended by itself\n{complaint.decode(errors='replace')}{_tail(console)}")


def _tail(console):
    try:
        lines = console.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(f"  console: {line}" for line in lines[-CONSOLE_LINES:])
