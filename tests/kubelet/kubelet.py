"""A kubelet on the node: alone with a directory of static pods, or with a given API server.

Everything is below one directory. The caller chooses its log's path, and queries it over its read-only port.
"""

import json
import re
import subprocess
import urllib.request

# klog's error lines about the runtime.
RUNTIME_ERROR = re.compile(r"^E\d{4} .*(?i:runtime|cri_|remote_|rpc error|podvisor|image_?fs|imagefs|sandbox)")
# Lines without a fault in the runtime, each with its reason.
EXPECTED = re.compile(
    "|".join(
        [
            r"CrashLoopBackOff",  # the back-off itself is logged as an error
            r"nodes? .*not found|mirror pod",  # what a node without an API server lacks
            r"container runtime status check may not have completed yet",  # a kubelet's first second, before it has asked
            r"code = Canceled desc = context canceled",  # a kubelet that is stopped cancels its own calls
            r"ContainerStatus from runtime service failed.*code = NotFound",  # two threads of it remove a container, and one asks for it then
            r"ListAndWatch ended unexpectedly for device plugin",  # a plugin that ends is no error of the runtime, whatever its name
            r"no imagefs label for configured runtime",  # cAdvisor has labels for three runtimes by name, and no other
        ]
    )
)


def configuration(directory, endpoint, address):
    """All functions of a kubelet on a node, without authorization."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "staticPodPath": str(directory / "manifests"),
        "containerRuntimeEndpoint": endpoint,
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "podLogsDir": str(directory / "podlogs"),
        "address": address,
        "readOnlyPort": 10255,
        "makeIPTablesUtilChains": False,
        "volumePluginDir": str(directory / "volume-plugins"),
        "fileCheckFrequency": "5s",
        "resolvConf": "",
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "10Mi"},
    }


class Kubelet:
    """A running kubelet. `cluster` is the kubeconfig of its API server; without one it stands alone.
    `settings` are additional ones."""

    def __init__(self, binary, directory, endpoint, logs, address="127.0.0.1", cluster=None, settings=None):
        for name in ("manifests", "podlogs", "volume-plugins", "root", "pki", "empty"):
            (directory / name).mkdir(exist_ok=True)
        config = directory / "kubelet.json"
        config.write_text(json.dumps({**configuration(directory, endpoint, address), **(settings or {})}))
        self.log = logs / "kubelet.log"
        self.command = [
            binary, "--config", config, "--root-dir", directory / "root", "--cert-dir", directory / "pki",
            "--hostname-override", "node1", "--node-ip", address, "--v=2", *(["--kubeconfig", cluster] if cluster else []),
        ]  # fmt: skip
        self.read_only = f"http://{address}:10255"
        # An empty directory: with an empty log path from the runtime, the kubelet would delete this
        # directory's content.
        self.empty = directory / "empty"
        self.log.unlink(missing_ok=True)
        self.start()

    def start(self):
        """Starts, also again after a stop."""
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(self.command, cwd=self.empty, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def get(self, path):
        with urllib.request.urlopen(self.read_only + path, timeout=60) as answer:
            return json.load(answer)

    def pods(self):
        """By name; a static pod's ends in the node's."""
        return {pod["metadata"]["name"].removesuffix("-node1"): pod.get("status", {}) for pod in self.get("/pods").get("items") or []}

    def errors(self):
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if RUNTIME_ERROR.search(line) and not EXPECTED.search(line)]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def disk(directory):
    """A real file system for images: the kubelet's eviction manager does not find one without a device."""
    image = directory.with_suffix(".ext4")
    subprocess.run(["truncate", "-s", "16G", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=1", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, directory], check=True)
