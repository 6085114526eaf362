"""kubectl as a client: through an API server and a real kubelet."""

import json
import os
import pathlib
import subprocess
import time

import pods
from control_plane import LIMIT

# Variables making kubectl speak SPDY instead of WebSocket.
VARIABLES = ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS")


class Kubectl:
    name = "kubectl"

    def __init__(self, binary, kubeconfig, directory):
        self.binary, self.directory = [binary, "--kubeconfig", kubeconfig], pathlib.Path(directory)
        self.environment, self.transport = dict(os.environ), ""
        self._until("node", "node1")

    def prepare(self, transport):
        """New pods for each transport: some of the checks end theirs."""
        self.transport = transport
        for variable in VARIABLES:
            self.environment[variable] = str(transport == "websocket").lower()
        for name, (command, terminal) in pods.PODS.items():
            manifest = self.directory / f"{name}.json"
            manifest.write_text(json.dumps(pod(self._pod(name), command, terminal)))
            # kubectl would check the manifest against the API's description. A slow server has it long after
            # it is ready.
            self._insist("apply", "--validate=false", "-f", manifest)
        for name in pods.PODS:
            self._until("pod", self._pod(name))

    def clear(self):
        self._insist("delete", "pod", *map(self._pod, pods.PODS), "--ignore-not-found", "--grace-period=1", "--timeout=300s")

    def exec(self, name, flags, line):
        return [*self.binary, "exec", *flags, self._pod(name), "--", "sh", "-c", line]

    def attach(self, name, flags):
        return [*self.binary, "attach", *flags, self._pod(name)]

    def forward(self, name, port):
        return [*self.binary, "port-forward", f"pod/{self._pod(name)}", f":{port}"]

    def logs(self, name):
        return [*self.binary, "logs", "--follow", self._pod(name)]

    def copy_in(self, path, name, there):
        return [*self.binary, "cp", path, f"{self._pod(name)}:{there}"]

    def copy_out(self, name, there, path):
        return [*self.binary, "cp", f"{self._pod(name)}:{there}", path]

    def _pod(self, name):
        return f"{name}-{self.transport}"

    def _until(self, kind, name):
        """Ready, as the kubelet says."""
        deadline, said = time.monotonic() + LIMIT, ""
        while time.monotonic() < deadline:
            done = subprocess.run([*self.binary, "get", kind, name, "-o", "json"], env=self.environment, capture_output=True, text=True)
            said = done.stdout or done.stderr
            conditions = json.loads(done.stdout or "{}").get("status", {}).get("conditions") or []
            if any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions):
                return
            time.sleep(1)
        raise SystemExit(f"clients: {kind} {name} does not become ready: {said}")

    def _insist(self, *arguments):
        """A repeatable call: with many clients, a slow API server lets handshakes and requests time out."""
        deadline = time.monotonic() + LIMIT
        while True:
            done = subprocess.run([*self.binary, *arguments], env=self.environment, capture_output=True, text=True)
            if done.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"kubectl {' '.join(map(str, arguments))}: {done.stderr}")
            time.sleep(1)


def pod(name, command, terminal):
    container = {"name": "main", "image": pods.IMAGE, "imagePullPolicy": "IfNotPresent", "command": command}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": "node1",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            # Nothing removes a new node's taints.
            "tolerations": [{"operator": "Exists"}],
            "containers": [{**container, "stdin": terminal, "tty": terminal}],
        },
    }
