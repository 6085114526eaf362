"""A run's request to the node: the command, its directory and its variables, as a cpio archive for the kernel
to unpack over the initramfs. Nothing else of the caller's environment goes in, so a run does not depend on
it."""

import shlex

# Whole names, for builds and tests to find their tools.
NAMES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "CI", "TMPDIR", "SOURCE_DATE_EPOCH")
# Prefixes of names. MAKEFLAGS is left out on purpose: it names a jobserver's descriptors, missing in the
# node.
PREFIXES = ("CARGO_", "PODVISOR_", "RUST_", "RUSTUP_")
# A registry token is useless without a network.
SECRET_SUFFIXES = ("_TOKEN", "_CREDENTIAL_PROVIDER")


def passed_environment(environment):
    """The documented part of the caller's environment."""
    return {
        name: value
        for name, value in environment.items()
        if (name in NAMES or name.startswith(PREFIXES)) and not name.endswith(SECRET_SUFFIXES)
    }


def settings(pairs):
    """Shell assignments for the init."""
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in pairs.items())


def script(command, directory, environment):
    """A shell script, becoming the command."""
    variables = " ".join(shlex.quote(f"{name}={value}") for name, value in sorted(environment.items()))
    words = " ".join(shlex.quote(word) for word in command)
    # `exec env` reports 126 and 127 as a shell does, and leaves no shell between the init and the command.
    return f"cd {shlex.quote(directory)} || exit 125\nexec env -i {variables} {words}\n"


def archive(files):
    """A `newc` cpio of the directory /request with the given files. Linux:
    Documentation/driver-api/early-userspace/buffer-format.rst"""
    parts = [_entry(1, "request", 0o040700, b"")]
    parts += [_entry(number, f"request/{name}", 0o100600, text.encode()) for number, (name, text) in enumerate(files.items(), 2)]
    parts.append(_entry(0, "TRAILER!!!", 0, b""))
    return b"".join(parts)


def _entry(inode, name, mode, content):
    encoded = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + encoded) + _padded(content)


def _padded(data):
    return data + b"\0" * (-len(data) % 4)
