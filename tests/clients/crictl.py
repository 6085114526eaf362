"""crictl as a client, at the daemon itself."""

import json
import os
import pathlib
import subprocess

import pods


class Crictl:
    name = "crictl"

    def __init__(self, binary, endpoint, directory):
        self.binary, self.directory = binary, pathlib.Path(directory)
        config = self.directory / "crictl.yaml"
        # Its own limit of 2 s is for hardware.
        config.write_text(f"runtime-endpoint: {endpoint}\nimage-endpoint: {endpoint}\ntimeout: 300\n")
        self.environment = {**os.environ, "CRI_CONFIG_FILE": str(config)}
        self.transport, self.pods, self.containers = "", {}, {}
        self._call("pull", pods.IMAGE)

    def prepare(self, transport):
        """New pods for each transport: some of the checks end theirs."""
        self.transport = ["--transport", transport]
        for name, (command, terminal) in pods.PODS.items():
            metadata = {"name": f"{name}-{transport}", "namespace": "clients", "uid": f"{name}-{transport}", "attempt": 0}
            pod = {"metadata": metadata, "log_directory": str(self.directory / "logs" / metadata["uid"]), "linux": {}}
            container = {
                "metadata": {"name": name}, "image": {"image": pods.IMAGE}, "command": command, "log_path": f"{name}.log",
                "stdin": terminal, "tty": terminal, "linux": {},
            }  # fmt: skip
            paths = []
            for kind, config in (("pod", pod), ("container", container)):
                paths.append(self.directory / f"{name}-{kind}.json")
                paths[-1].write_text(json.dumps(config))
            self.pods[name] = self._call("runp", paths[0])
            self.containers[name] = self._call("create", self.pods[name], paths[1], paths[0])
            self._call("start", self.containers[name])

    def clear(self):
        for pod in self.pods.values():
            self._call("rmp", "--force", pod)

    def exec(self, name, flags, line):
        return [self.binary, "exec", *self.transport, *flags, self.containers[name], "sh", "-c", line]

    def attach(self, name, flags):
        return [self.binary, "attach", *self.transport, *flags, self.containers[name]]

    def forward(self, name, port):
        return [self.binary, "port-forward", *self.transport, self.pods[name], f"0:{port}"]

    def logs(self, name):
        return [self.binary, "logs", "--follow", self.containers[name]]

    def _call(self, *arguments):
        done = subprocess.run([self.binary, *arguments], env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"crictl {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout.strip()
