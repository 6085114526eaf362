"""Podvisor's device plugin beside a kubelet: its places for VMs as the kubelet counts them, by the kubelet's
pod-resources socket.

A kubelet's directory of plugins is /var/lib/kubelet/device-plugins for any --root-dir; the pod-resources
socket is below --root-dir.
"""

import json
import subprocess

VMS = 3
RESOURCE = "podvisor.io/vm"
ALL = [f"vm-{number}" for number in range(VMS)]


class Places:
    """A running plugin. Each check is for `wait` of the session, and returns a line once it is true."""

    def __init__(self, binaries, config, root, logs):
        self.socket = root / "pod-resources/kubelet.sock"
        self.client = f"{binaries}/tests-pod-resources"
        self.held, self.container = [], {}
        command = [f"{binaries}/podvisor", "--config", config, "device-plugin", "--vms", str(VMS), "--pod-resources", self.socket]
        with open(logs / "device-plugin.log", "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ask(self):
        """Our healthy devices, and each pod's devices."""
        # The client itself gives up an unresponsive kubelet.
        asked = subprocess.run([self.client, self.socket, RESOURCE], capture_output=True, text=True)
        if asked.returncode:
            raise OSError(asked.stderr.strip())
        answer = json.loads(asked.stdout)
        return sorted(answer["healthy"]), {name.removesuffix("-node1"): sorted(ids) for name, ids in answer["held"].items()}

    def status(self, kubelet, name):
        status = kubelet.pods().get(name, {})
        return status, (status.get("containerStatuses") or [{}])[0]

    def places_are_listed(self, kubelet):
        healthy, held = self.ask()
        return healthy == ALL and not held and f"places: {', '.join(healthy)}"

    def placed_pod_holds_one(self, kubelet):
        _, held = self.ask()
        status, self.container = self.status(kubelet, "placed")
        running = self.container.get("state", {}).get("running")
        self.held = held.get("placed", [])
        return running and len(self.held) == 1 and f"placed: {status.get('phase')}, holds {self.held[0]}"

    def greedy_pod_is_refused(self, kubelet):
        status, _ = self.status(kubelet, "greedy")
        if status.get("phase") != "Failed":
            return False
        if RESOURCE not in status.get("message", "") + status.get("reason", ""):
            raise SystemExit(f"kubelet: greedy was refused for another reason: {status}")
        return f"greedy: {status.get('reason')}: {status.get('message')}"

    def places_outlive_the_kubelet(self, kubelet):
        healthy, held = self.ask()
        status, container = self.status(kubelet, "placed")
        if status.get("phase") == "Failed":
            raise SystemExit(f"kubelet: placed did not survive the kubelet's restart: {status}")
        same = container.get("containerID") == self.container.get("containerID") and container.get("restartCount") == 0
        return healthy == ALL and held.get("placed") == self.held and same and f"places after a restart: {', '.join(healthy)}; placed goes on"

    def places_go_with_the_plugin(self, kubelet):
        healthy, held = self.ask()
        _, container = self.status(kubelet, "placed")
        running = container.get("state", {}).get("running")
        return not healthy and running and held.get("placed") == self.held and "places without the plugin: none; placed goes on"

    def stop(self):
        """Ends the plugin as systemd does. Returns its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
