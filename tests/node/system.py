"""The software node's boot files: Debian's stock kernel, its modules and a small initramfs, made once and
kept outside the checkout in ${PODVISOR_CACHE:-~/.cache/podvisor}/node/<hash of their sources>. Nothing is
installed on the system."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

from failure import NodeError

# 6.12 rather than Debian 12's own 6.1: virtio-pci, virtio-console and FUSE are built in, and it is the line
# the guest runs.
PACKAGE = os.environ.get("PODVISOR_NODE_KERNEL", "linux-image-6.12.117+deb12-amd64")
HERE = pathlib.Path(os.path.realpath(__file__)).parent
TOOLS = ("qemu-system-x86_64", "dpkg", "apt-get", "depmod", "zstd", "xz", "cpio", "busybox")

# Modules kept, as folders of lib/modules/*/kernel; the others are for hardware missing in the node. (kvm_amd
# has symbols of ccp, AMD's secure processor.)
FOLDERS = ("arch", "block", "crypto", "fs", "lib", "mm", "net", "virt", "drivers/block", "drivers/char", "drivers/dax", "drivers/md")
FOLDERS += ("drivers/nvdimm", "drivers/ptp", "drivers/vhost", "drivers/virtio", "drivers/vdpa", "drivers/net", "drivers/crypto/ccp")
DROPPED = ("drivers/net/ethernet", "drivers/net/wireless", "drivers/net/usb", "drivers/net/can", "drivers/net/phy", "drivers/net/dsa")
DROPPED += ("drivers/net/wwan", "drivers/net/fddi", "drivers/net/arcnet", "drivers/net/hamradio", "drivers/net/pcs")

# Loaded before the command starts. The first line is for the root file system. crc32c is named because
# libcrc32c requests it by its algorithm, invisible in any list of dependencies.
BOOT_MODULES = "9p 9pnet_virtio overlay virtio_rng"
NODE_MODULES = (
    "crc32c_generic crc32c_intel kvm_amd tun veth bridge br_netfilter loop ext4 erofs vhost_net vhost_vsock "
    "cls_matchall cls_u32 cls_bpf act_mirred sch_ingress sch_htb sch_tbf "
    "nf_tables nft_compat nft_chain_nat nft_ct nft_masq nft_nat nft_reject_inet "
    "xt_comment xt_conntrack xt_addrtype xt_mark xt_multiport xt_MASQUERADE xt_nat xt_tcpudp xt_statistic ip6_tables ip_tables"
)


class Node:
    """The directory of a prepared node."""

    def __init__(self, directory):
        self.directory = directory
        self.kernel = directory / "vmlinux"
        self.initramfs = directory / "initramfs.cpio"
        self.modules = directory / "modules"


def cache_root():
    """The shared folder of all of Podvisor's caches."""
    return pathlib.Path(os.environ.get("PODVISOR_CACHE") or pathlib.Path.home() / ".cache/podvisor")


def prepare():
    """The node's kernel and initramfs, made if this content was never made before. Safe when several runs
    start at once."""
    key = hashlib.sha256(PACKAGE.encode())
    for name in ("system.py", "init.sh"):
        key.update((HERE / name).read_bytes())
    directory = cache_root() / "node" / key.hexdigest()[:16]
    if (directory / "complete").exists():
        return Node(directory)
    missing = [tool for tool in TOOLS if shutil.which(tool, path=_path()) is None]
    if missing:
        raise NodeError(f"{', '.join(missing)} not found; run tests/node/install as root")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _locked(directory.parent / "lock"):
        if not (directory / "complete").exists():
            _make(directory)
    return Node(directory)


def _path():
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


@contextlib.contextmanager
def _locked(path):
    with open(path, "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(*command, **options):
    try:
        return subprocess.run(command, check=True, capture_output=True, stdin=options.pop("stdin", subprocess.DEVNULL), **options)
    except subprocess.CalledProcessError as error:
        raise NodeError(f"{' '.join(map(str, command))}: {error.stderr.decode(errors='replace').strip()}") from error


def _make(directory):
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    print(f"node: preparing {PACKAGE} in {directory} (once)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        scratch = pathlib.Path(scratch)
        package = _download(scratch)
        _run("dpkg", "-x", str(package), str(scratch / "tree"))
        node = Node(directory)
        _unpack_kernel(next((scratch / "tree/boot").glob("vmlinuz-*")), node.kernel)
        version = _unpack_modules(scratch / "tree/lib/modules", node.modules)
        _pack_initramfs(scratch / "initramfs", node, version)
    (directory / "complete").touch()


def _download(scratch):
    kept = os.environ.get("PODVISOR_NODE_KERNEL_DEB")
    if kept:
        return pathlib.Path(kept)
    try:
        _run("apt-get", "download", "-q", PACKAGE, cwd=scratch)
    except NodeError as error:
        raise NodeError(f"{error}\nnode: run `apt-get update`, or name another kernel with PODVISOR_NODE_KERNEL") from error
    return next(scratch.glob("*.deb"))


def _unpack_kernel(image, target):
    """The uncompressed ELF in a bzImage: QEMU starts it through its PVH entry, so 58 MB need no decompression
    under emulation. Linux: Documentation/arch/x86/boot.rst, fields setup_sects, payload_offset,
    payload_length."""
    data = image.read_bytes()
    offset, length = struct.unpack_from("<II", data, 0x248)
    start = (data[0x1F1] + 1) * 512 + offset
    payload = data[start : start + length - 4]  # the last four bytes are the size of the content
    unpackers = {b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zX": "xz"}
    unpacker = unpackers.get(payload[:4])
    if unpacker is None:
        raise NodeError(f"{image}: a compression other than zstd or xz")
    target.write_bytes(subprocess.run([unpacker, "-dc"], input=payload, check=True, stdout=subprocess.PIPE).stdout)


def _unpack_modules(source, target):
    """Copies the kept modules, uncompressed, so the node only needs to read them for loading."""
    tree = next(source.iterdir())
    copy = target / "lib/modules" / tree.name
    for path in sorted(tree.rglob("*.ko*")):
        inside = str(path.relative_to(tree / "kernel"))
        if not inside.startswith(FOLDERS) or inside.startswith(DROPPED):
            continue
        place = copy / "kernel" / inside
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    packed = [str(path) for path in copy.rglob("*.ko.xz")]
    if packed:
        _run("xz", "-d", "-T0", *packed)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copyfile(tree / name, copy / name)
    _run("depmod", "-b", str(target), tree.name, env={"PATH": _path()})
    return tree.name


def _pack_initramfs(scratch, node, version):
    """busybox, the init, and the modules to load, in the order to load them: the init needs no modprobe."""
    scratch.mkdir()
    for name in ("bin", "dev", "proc", "sys", "root", "modules"):
        (scratch / name).mkdir()
    shutil.copyfile(shutil.which("busybox"), scratch / "bin/busybox")
    (scratch / "bin/busybox").chmod(0o755)
    shutil.copyfile(HERE / "init.sh", scratch / "init")
    (scratch / "init").chmod(0o755)
    needs = _dependencies(node.modules / "lib/modules" / version)
    for group, names in (("boot", BOOT_MODULES), ("node", NODE_MODULES)):
        order = []
        for name in names.split():
            _visit(name, needs, order)
        for path in order:
            shutil.copyfile(node.modules / "lib/modules" / version / path, scratch / "modules" / os.path.basename(path))
        (scratch / "modules" / group).write_text("".join(f"{os.path.basename(path)}\n" for path in order))
    names = "".join(f"{path.relative_to(scratch)}\n" for path in sorted(scratch.rglob("*")))
    packed = _run("cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0", stdin=_as_file(names), cwd=scratch).stdout
    node.initramfs.write_bytes(packed)


def _as_file(text):
    file = tempfile.TemporaryFile()
    file.write(text.encode())
    file.seek(0)
    return file


def _dependencies(directory):
    needs = {}
    for line in (directory / "modules.dep").read_text().splitlines():
        module, _, rest = line.partition(":")
        needs[_module_name(module)] = (module, rest.split())
    return needs


def _visit(name, needs, order):
    entry = needs.get(name)
    if entry is None or entry[0] in order:
        return  # built into this kernel, or had already
    module, rest = entry
    for path in rest:
        _visit(_module_name(path), needs, order)
    order.append(module)


def _module_name(path):
    return os.path.basename(path)[: -len(".ko")].replace("-", "_")
