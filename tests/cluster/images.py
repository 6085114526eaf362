"""All images of a run, as the data of a registry made before the node's start: pushing them there would take
it minutes.

They are the stand-ins of the conformance suite, and images of the run's given programs. Each of these images
has one layer: the programs, with the libraries found by the dynamic loader.
"""

import contextlib
import hashlib
import http.client
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

SHELL = "/bin/busybox"
# The programs in the manifests' lines.
APPLETS = ("sh", "cat", "cp", "mv", "sleep", "ls", "mkdir")
LAYER = "application/vnd.oci.image.layer.v1.tar"


def closure(program):
    """The program's libraries and its loader, as paths on this host; none for a static program."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True)
    if listed.returncode:
        return []
    if "not found" in listed.stdout:
        raise SystemExit(f"cluster: {program} lacks libraries:\n{listed.stdout}")
    return re.findall(r"(?:=> )?(/\S+) \(0x", listed.stdout)


def build(programs, path):
    """Writes a layer of the programs, by their paths in it. Returns the argument for `Registry.push`."""
    files = {}
    for there, here in {**programs, "/bin/busybox": SHELL}.items():
        files[there] = here
        for library in closure(here):
            files[library] = library
    with tarfile.open(path, mode="w", format=tarfile.PAX_FORMAT) as tar:
        directories = {parent for there in files for parent in pathlib.PurePosixPath(there).parents}
        for directory in sorted({*map(str, directories), "/tmp", "/run"} - {"/"}):
            add(tar, directory, tarfile.DIRTYPE, b"")
        for there, here in sorted(files.items()):
            add(tar, there, tarfile.REGTYPE, pathlib.Path(here).resolve().read_bytes())
        for name in APPLETS:
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    content = pathlib.Path(path).read_bytes()
    return {"layer": str(path), "digest": digest(content), "size": len(content)}


def add(tar, path, kind, content):
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type, entry.size, entry.mode = kind, len(content), 0o755
    tar.addfile(entry, io.BytesIO(content))


def store(binaries, files, images, port, scratch):
    """Stores the conformance suite's images and these, by name: programs. Returns the parent directory of
    `registry`."""
    work = scratch / "pushed"
    work.mkdir()
    command = [f"{binaries}/tests-conformance", "--files", files, "--port", str(port)]
    # Its data is in a temporary directory, and goes with it.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(work)})
    try:
        if not process.stdout.readline():
            raise SystemExit("cluster: the registry of the images does not start")
        with contextlib.closing(Registry(port)) as registry:
            for name, programs in images.items():
                registry.push(f"podvisor-tests/{name}", "1", build(programs, scratch / f"{name}.tar"))
        shutil.copytree(next(work.glob("*/data")), scratch / "registry")
    finally:
        process.terminate()
        process.wait()
    return scratch


class Registry:
    """The registry on loopback, for pushes."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def close(self):
        self.connection.close()

    def push(self, repository, tag, image):
        """Pushes an image made by `build`."""
        config = {
            "architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "Cmd": ["sh"]},
            "rootfs": {"type": "layers", "diff_ids": [image["digest"]]},
        }  # fmt: skip
        config = json.dumps(config).encode()
        self._blob(repository, pathlib.Path(image["layer"]).read_bytes(), image["digest"])
        self._blob(repository, config, digest(config))
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifest = {
            "schemaVersion": 2, "mediaType": kind,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(config), "size": len(config)},
            "layers": [{"mediaType": LAYER, "digest": image["digest"], "size": image["size"]}],
        }  # fmt: skip
        self._ask("PUT", f"/v2/{repository}/manifests/{tag}", json.dumps(manifest).encode(), kind)

    def _blob(self, repository, content, name):
        place = self._ask("POST", f"/v2/{repository}/blobs/uploads/", b"")
        place = re.sub(r"^https?://[^/]+", "", place)
        joined = "&" if "?" in place else "?"
        self._ask("PUT", f"{place}{joined}digest={name}", content)

    def _ask(self, method, path, content, kind="application/octet-stream"):
        self.connection.request(method, path, content, {"Content-Type": kind, "Content-Length": str(len(content))})
        answer = self.connection.getresponse()
        said = answer.read()
        if answer.status not in (201, 202):
            raise SystemExit(f"cluster: {method} {path}: {answer.status} {said!r}")
        return answer.getheader("Location", "")


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()
