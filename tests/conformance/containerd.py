"""containerd as the node's other runtime: 2.x if available, otherwise Debian's 1.6."""

import pathlib
import re
import socket
import subprocess
import time

LIMIT = 300
PAUSE = "127.0.0.1:5000/sandbox:1"


class Containerd:
    """A running containerd. Its pods outlive it. Files outliving the node are below `directory`, the rest
    below `run`."""

    def __init__(self, binary, directory, run, logs, plugins, log="containerd.log"):
        self.binary, self.run, self.log = binary, pathlib.Path(run), logs / log
        self.socket = self.run / "containerd.sock"
        self.run.mkdir(parents=True, exist_ok=True)
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
        self.version = tuple(map(int, re.search(r"(\d+)\.(\d+)\.\d+", said).groups()))
        self.config = self.run / "config.toml"
        self.config.write_text(self._text(pathlib.Path(directory), plugins))
        self.start()

    def _text(self, directory, plugins):
        common = f'root = "{directory}/containerd"\nstate = "{self.run}/state"\n[grpc]\naddress = "{self.socket}"\n'
        networks, mirrors = f'conf_dir = "{directory}/cni"', f'config_path = "{directory}/certs.d"'
        if self.version < (2, 0):
            cri = 'plugins."io.containerd.grpc.v1.cri"'
            return (
                f'version = 2\n{common}[{cri}]\nsandbox_image = "{PAUSE}"\n[{cri}.cni]\nbin_dir = "{plugins}"\n{networks}\n'
                f'[{cri}.registry]\n{mirrors}\n[{cri}.containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
            )
        images, runtime = ('plugins."io.containerd.cri.v1.' + part + '"' for part in ("images", "runtime"))
        return (
            f'version = 3\n{common}[{images}.pinned_images]\nsandbox = "{PAUSE}"\n[{images}.registry]\n{mirrors}\n'
            f'[{runtime}.cni]\nbin_dirs = ["{plugins}"]\n{networks}\n'
            f'[{runtime}.containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
        )

    def start(self):
        """Starts it, also again over its state."""
        # If it is not Debian's, the shim is beside it.
        beside = pathlib.Path(self.binary).parent
        environment = {"PATH": f"{beside}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        with open(self.log, "a") as log:
            command = [self.binary, "--config", self.config]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline and self.process.poll() is None:
            with socket.socket(socket.AF_UNIX) as client:
                try:
                    client.connect(str(self.socket))
                    return
                except OSError:
                    time.sleep(0.2)
        raise SystemExit(f"host: containerd does not listen, see {self.log}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
