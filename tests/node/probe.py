"""Checks if this host's /dev/kvm runs a Linux guest, by running one: a device may open and even create a VM,
and still fail on the first instructions of a kernel. The answer is kept for this boot of the host."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import request

# A working guest needs about two seconds; a broken one may hang.
LIMIT_SECONDS = 20


def kvm_works(node):
    """The kept answer, or a new one."""
    if os.geteuid() != 0 and not _sudo_works():
        return False
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    answer = node.directory / f"kvm-{boot}"
    if not answer.exists():
        kept = tempfile.NamedTemporaryFile("w", dir=node.directory, delete=False)
        with kept:
            kept.write("yes" if _guest_says_hello(node) else "no")
        os.replace(kept.name, answer)
    return answer.read_text() == "yes"


def _sudo_works():
    return shutil.which("sudo") is not None and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0


def _guest_says_hello(node):
    """Boots the node's own kernel on KVM, up to a program with a message on the serial line and a power-off."""
    word = "kvm-runs-linux"
    with tempfile.TemporaryDirectory(prefix="podvisor-probe-") as scratch:
        initramfs = pathlib.Path(scratch) / "initramfs"
        hello = f"/bin/busybox mount -t devtmpfs dev /dev; echo {word} >/dev/ttyS0; /bin/busybox reboot -f\n"
        initramfs.write_bytes(node.initramfs.read_bytes() + request.archive({"hello": hello}))
        command = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-M", "q35"]
        command += ["-accel", "kvm", "-cpu", "host", "-m", "512", "-bios", "qboot.rom", "-serial", "stdio", "-kernel", str(node.kernel)]
        command += ["-initrd", str(initramfs), "-append", "console=ttyS0 quiet panic=-1 rdinit=/bin/busybox -- sh /request/hello"]
        try:
            ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return False
        return word.encode() in ended.stdout
