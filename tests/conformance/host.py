"""One Podvisor host inside the node: the registry with the stand-in images, a CNI network, mirrors, and the
daemon.

Everything is below one directory; its processes end with it. Shared by the conformance suite and the tests
with a kubelet.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import time

REGISTRY_PORT = 5000
# The registries replaced by our registry.
UPSTREAMS = ("registry.k8s.io", "k8s.gcr.io", "gcr.io")
PLUGINS = "/usr/lib/cni"
# The software node is slow; on hardware none of this is waited for.
START_LIMIT = 120


# Small pods: a software node has little memory, and the suites' programs are small.
HANDLERS = {"podvisor": 128}


class Host:
    """Starts all of the host. `binaries` has the daemon and the registry, `logs` gets their logs.

    `files` is the output of tests/conformance/files, or has the data of a registry in `registry`. `run` is
    the daemon's directory of files ending with the node; everything else outlives it; `handlers` has their
    memory by name. If `network` is false, another program configures the network. `upstream` is another
    runtime's socket, and `unnamed` selects the pods without a handler to go there. Without `serve` there is
    no daemon, and clients use that runtime."""

    def __init__(
        self, directory, binaries, guest_image, files, logs, name="host", run=None, handlers=None, network=True, upstream=None,
        unnamed="node", serve=True,
    ):  # fmt: skip
        self.directory, self.binaries, self.logs, self.name = pathlib.Path(directory), pathlib.Path(binaries), pathlib.Path(logs), name
        self.run = pathlib.Path(run or self.directory / "run")
        self.endpoint = f"unix://{self.run}/podvisor.sock" if serve else f"unix://{upstream}"
        # Plugins of VM pods; another runtime's pods have their own.
        self.plugins = self.run / "nri.sock" if serve and unnamed != "all" else None
        self.directory.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        self._mirror()
        if network:
            (self.directory / "cni/10-podvisor.conflist").write_text(json.dumps(self.network()))
        self._configure(guest_image, handlers or HANDLERS, upstream, unnamed)
        self.registry = self._start_registry(files)
        self.daemon = None
        if serve:
            self.start_daemon()

    def _mirror(self):
        for upstream in UPSTREAMS:
            mirror = self.directory / "certs.d" / upstream
            mirror.mkdir(parents=True, exist_ok=True)
            (mirror / "hosts.toml").write_text(f'[host."http://127.0.0.1:{REGISTRY_PORT}"]\ncapabilities = ["pull", "resolve"]\n')
        (self.directory / "cni").mkdir(exist_ok=True)

    def _configure(self, guest_image, handlers, upstream, unnamed):
        text = {
            "paths": {"state": "state", "run": self.run},
            "cni": {"conf_dir": "cni", "cache_dir": "cni-cache"},
            "registries": {"config_dir": "certs.d"},
        }
        lines = []
        for table, keys in text.items():
            lines += [f"[{table}]", *(f'{key} = "{self.directory / value}"' for key, value in keys.items())]
            lines += {"paths": [f'guest_image = "{guest_image}"'], "cni": [f'bin_dirs = ["{PLUGINS}"]']}.get(table, [])
        lines += ["[nri]", f'socket = "{self.run / "nri.sock"}"']
        if upstream:
            lines += ["[upstream]", f'socket = "{upstream}"', 'handlers = ["runc"]', f'unnamed_pods = "{unnamed}"']
        for number, (handler, memory) in enumerate(handlers.items()):
            first = str(number == 0 and unnamed != "all").lower()
            lines += ["[[handler]]", f'name = "{handler}"', f"default = {first}", f"memory_mib = {memory}", "scratch_mib = 1024"]
        (self.directory / "config.toml").write_text("\n".join(lines) + "\n")

    def bridge(self):
        """A network of one plugin, for pods without host ports and with access only to the node: fewer
        programs to run for each pod."""
        network = self.network()
        bridge = {**network["plugins"][0], "ipMasq": False}
        return {**network, "plugins": [bridge]}

    def network(self):
        """A masquerading bridge, and host ports on loopback, too (portmap sets route_localnet for them)."""
        ranges = [[{"subnet": "10.88.0.0/16"}], [{"subnet": "fd00:88::/64"}]]
        bridge = {
            "type": "bridge",
            "bridge": "podvisor0",
            "isGateway": True,
            "ipMasq": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(self.directory / "leases"),
                "ranges": ranges,
                "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
            },
        }
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
        return {"cniVersion": "1.0.0", "name": "podvisor", "plugins": [bridge, portmap]}

    def _start_registry(self, files):
        log = open(self.logs / f"{self.name}-registry.log", "a")
        if (pathlib.Path(files) / "registry").is_dir():
            return self._serve(pathlib.Path(files) / "registry", log)
        command = [self.binaries / "tests-conformance", "--files", files, "--port", str(REGISTRY_PORT)]
        registry = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        if not registry.stdout.readline():
            raise SystemExit(f"host: the registry does not start, see {log.name}")
        return registry

    def _serve(self, data, log):
        """A registry over another one's stored data: nothing is pushed, and nothing waits for it."""
        config = self.directory / "registry.yml"
        config.write_text(
            "version: 0.1\nlog: {level: warn, accesslog: {disabled: true}}\n"
            f'http: {{addr: "127.0.0.1:{REGISTRY_PORT}"}}\nstorage: {{filesystem: {{rootdirectory: "{data}"}}}}\n'
        )
        return subprocess.Popen(["docker-registry", "serve", config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_daemon(self):
        """Starts the daemon, also again after it ended."""
        log = open(self.logs / f"{self.name}-daemon.log", "a")
        environment = {**os.environ, "PODVISOR_LOG": os.environ.get("PODVISOR_LOG", "info,runtime_cri=debug,runtime_pod=debug")}
        command = [self.binaries / "podvisor", "--config", self.directory / "config.toml", "serve"]
        self.daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        self._wait_for_socket(log.name)

    def _wait_for_socket(self, log):
        deadline = time.monotonic() + START_LIMIT
        while time.monotonic() < deadline:
            with socket.socket(socket.AF_UNIX) as client:
                try:
                    client.connect(self.endpoint.removeprefix("unix://"))
                    return
                except OSError:
                    pass
            if self.daemon.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit(f"host: the daemon does not serve, see {log}")

    def stop(self):
        for process in filter(None, (self.daemon, self.registry)):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
