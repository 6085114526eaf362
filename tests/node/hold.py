"""Keeps two idle VMs and a traffic-control hook in the node for as long as it runs.

KVM and the network stack patch their own code when the first or last user of a feature comes or goes: a vCPU
with a disabled local APIC, one without any, the first VM, the first ingress hook (static keys, kernel's
jump_label). QEMU's TCG can run a stale translation of such a place on another CPU. The node's kernel then
dies of the short-lived breakpoint there. This program keeps these features in use, so none of these places is
patched while commands run. The node has one processor until then. Real hardware needs none of this.
"""

import fcntl
import os
import signal
import subprocess

KVM_CREATE_VM = 0xAE01
KVM_CREATE_VCPU = 0xAE41
KVM_CREATE_IRQCHIP = 0xAE60


def hold_vm(kvm, irqchip):
    """A VM with one vCPU, never run: its APIC stays in its reset state, disabled by software."""
    vm = fcntl.ioctl(kvm, KVM_CREATE_VM, 0)
    if irqchip:
        fcntl.ioctl(vm, KVM_CREATE_IRQCHIP, 0)
    return vm, fcntl.ioctl(vm, KVM_CREATE_VCPU, 0)


def hold_hooks():
    """A link always down, with hooks for incoming and outgoing packets."""
    for command in (
        ["ip", "link", "add", "held", "type", "dummy"],
        ["tc", "qdisc", "add", "dev", "held", "clsact"],
        ["tc", "qdisc", "add", "dev", "held", "root", "pfifo"],
    ):
        subprocess.run(command, check=False, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    device = os.open("/dev/kvm", os.O_RDWR)
    held = [hold_vm(device, irqchip) for irqchip in (True, False)]
    hold_hooks()
    print("held", flush=True)
    signal.pause()
