"""The software nodes' QEMU: a patched copy of the installed one. It delivers an interrupt injected by KVM
only once.

QEMU's VMRUN notes the vector of an injected interrupt as the CPU's pending exception, delivers the interrupt
by itself, and leaves the note there (`helper_vmrun` in target/i386/tcg/sysemu/svm_helper.c,
SVM_EVTINJ_TYPE_INTR). The guest's next exit drops it. If QEMU leaves the guest's code before that, for
example at the end of a slice of -icount, it delivers the vector again as an exception, though the guest has
interrupts off by then. The handler is then entered twice, and waits forever for its own lock.

The copy does not make the note. The place is found by its code; if a QEMU does not have it, or has it more
than once, it is used unpatched.
"""

import hashlib
import os
import pathlib
import re
import shutil
import sys

from failure import NodeError
from system import HERE, cache_root

NAME = "qemu-system-x86_64"
# mov %r13d,error_code; mov %esi,exception_index; movl $0,exception_is_int; movq $-1,exception_next_eip: all
# of a CPU at %rbx.
NOTE = re.compile(
    rb"(?P<before>\x44\x89\xab..\x00\x00)\x89\xb3..\xff\xff(?P<after>\xc7\x83..\x00\x00\x00\x00\x00\x00\x48\xc7\x83..\x00\x00\xff\xff\xff\xff)",
    re.DOTALL,
)
# A six-byte instruction without effect.
NOTHING = b"\x66\x0f\x1f\x44\x00\x00"


def mended(code):
    """The program without the note, or None if the place of the note is unknown."""
    changed, places = NOTE.subn(lambda found: found["before"] + NOTHING + found["after"], code)
    return changed if places == 1 else None


def path():
    """The program to run, made if this QEMU was never mended before. Safe when several nodes start at once."""
    installed = shutil.which(NAME)
    if installed is None:
        raise NodeError(f"{NAME} not found; run tests/node/install as root")
    code = pathlib.Path(installed).read_bytes()
    key = hashlib.sha256(code + (HERE / "emulator.py").read_bytes()).hexdigest()[:16]
    # QEMU looks for its modules and firmware beside its own folder.
    prefix = cache_root() / "node" / f"qemu-{key}"
    program = prefix / "bin" / NAME
    if program.exists():
        return program
    changed = mended(code)
    if changed is None:
        print("node: an interrupt may be delivered twice: this QEMU is not one that is known", file=sys.stderr)
        return installed
    program.parent.mkdir(parents=True, exist_ok=True)
    for folder in ("lib", "share"):
        if not (prefix / folder).exists():
            made = prefix / f"{folder}.{os.getpid()}"
            made.symlink_to(f"/usr/{folder}")
            made.replace(prefix / folder)
    made = program.with_suffix(f".{os.getpid()}")
    made.write_bytes(changed)
    made.chmod(0o755)
    made.replace(program)
    return program
