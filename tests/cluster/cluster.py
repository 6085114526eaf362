"""A one-node cluster inside the node: control plane, registry, containerd, Podvisor and a kubelet, with
helpers for the checks."""

import json
import os
import pathlib
import subprocess
import time

import api
import objects
from containerd import Containerd
from control_plane import ADDRESS, ControlPlane, take_address
from host import PLUGINS, REGISTRY_PORT, Host
from kubelet import Kubelet

# Longest wait for one event: the software node is slow, and a loaded one slower.
LIMIT = int(os.environ.get("PODVISOR_CLUSTER_LIMIT", "1500"))
# Files ending with the node; short, because of its sockets.
RUN = pathlib.Path("/run/pvc-run")
# Space kept free by the kubelet on the disk, in MiB; `pressure.py` fills everything else.
ROOM_MIB = 1024
SETTINGS = {
    "syncFrequency": "10s",
    "evictionHard": {"memory.available": "10Mi", "nodefs.available": f"{ROOM_MIB}Mi", "imagefs.available": f"{ROOM_MIB}Mi"},
    "evictionPressureTransitionPeriod": "30s",
    # A slow node is not a dead one.
    "nodeLeaseDurationSeconds": 300,
}


class Cluster:
    """The whole cluster. `directory` outlives the node. A second start over it is a reboot."""

    def __init__(self, plan, directory, logs):
        self.plan, self.directory, self.logs = plan, pathlib.Path(directory), logs
        self.made, self.standing = [], []
        self.root = self.directory / "root"
        programs = plan["programs"]
        # Both write while nothing else runs: an API server's start is the longest of all.
        take_address()
        self.control = ControlPlane(programs, directory, logs, kept=True)
        self.containerd = Containerd(programs["containerd"], directory, RUN / "containerd", logs, PLUGINS)
        self.host = Host(
            directory, plan["binaries"], plan["guest_image"], plan["files"], logs, run=RUN / "podvisor",
            handlers={"podvisor": 128, "podvisor-large": 192}, network=False, upstream=self.containerd.socket,
        )  # fmt: skip
        self.control.start_controllers()
        self.kubelet = Kubelet(
            programs["kubelet"], self.directory, self.host.endpoint, logs, ADDRESS, self.control.kubeconfig, SETTINGS
        )  # fmt: skip

    def image(self, name):
        return f"127.0.0.1:{REGISTRY_PORT}/podvisor-tests/{name}:1"

    def mark(self, text):
        """A line in the kubelet's log, to let a reader find the lines of one check."""
        with open(self.kubelet.log, "a") as log:
            print(f"-- {text}", file=log)

    def stop(self):
        self.kubelet.stop()
        self.host.stop()
        self.containerd.kill()
        self.control.stop()

    # Objects.

    def create(self, *things):
        """Creates objects, removed after their check."""
        for thing in things:
            found = api.create(thing)
            self.made.append((thing["kind"], thing["metadata"]["name"], thing["metadata"].get("namespace")))
        return found

    def keep(self, *things):
        """Creates permanent objects."""
        for thing in things:
            api.create(thing)

    def clear(self):
        """Removes a check's objects, and waits until its pods are gone."""
        made, self.made = self.made, []
        for kind, name, namespace in reversed(made):
            api.delete(kind, name, namespace, grace=2 if kind == "Pod" else None)
        for kind, name, namespace in made:
            if kind == "Pod":
                self.until(f"pod {name} is gone", lambda name=name, namespace=namespace: api.find("Pod", name, namespace) is None)
            elif kind in ("Deployment", "StatefulSet", "DaemonSet", "Job"):
                self.until(f"pods of {name} are gone", lambda name=name, namespace=namespace: not self.pods(namespace, name))

    # Waiting.

    def until(self, what, true, limit=LIMIT):
        """Waits until something is so, and returns it. The programs beside are attended to meanwhile."""
        deadline, seen = time.monotonic() + limit, None
        while True:
            self.attend()
            try:
                seen = true()
                if seen:
                    return seen
            except OSError as error:
                seen = error
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not so: {self.last(seen)}")
            time.sleep(2)

    def last(self, seen):
        """Possible explanations of a missing event."""
        events = [event for namespace in (*objects.TENANTS, "kube-system") for event in api.items("Event", namespace)]
        events.sort(key=lambda event: event.get("lastTimestamp") or event["metadata"]["creationTimestamp"])
        said = [f"{event['involvedObject'].get('name')}: {event['reason']}: {event.get('message', '')[:300]}" for event in events[-8:]]
        return f"{seen!r}\n    " + "\n    ".join(said)

    def attend(self):
        self.control.attend()
        for name, process in (("kubelet", self.kubelet.process), ("daemon", self.host.daemon), ("containerd", self.containerd.process)):
            if process.poll() is not None:
                again = {"kubelet": self.kubelet.start, "daemon": self.host.start_daemon, "containerd": self.containerd.start}[name]
                again()
                raise AssertionError(f"the {name} ended by itself with {process.returncode}")

    def node_condition(self, name):
        node = api.find("Node", objects.NODE) or {}
        return next((one for one in node.get("status", {}).get("conditions", []) if one["type"] == name), {})

    # Pods.

    def pods(self, namespace, app):
        return api.items("Pod", namespace, f"app={app}")

    def status(self, namespace, name):
        return (api.find("Pod", name, namespace) or {}).get("status", {})

    def ready(self, namespace, name):
        """Waits for a pod of this name to be ready; returns it."""

        def true():
            found = api.find("Pod", name, namespace)
            return found if found and is_ready(found) else None

        return self.until(f"pod {namespace}/{name} is ready", true)

    def all_ready(self, namespace, app, count):
        """Waits until an app has this many pods, all ready; returns them."""

        def true():
            found = [pod for pod in self.pods(namespace, app) if pod["status"].get("phase") not in ("Succeeded", "Failed")]
            return found if len(found) == count and all(map(is_ready, found)) else None

        return self.until(f"{count} pods of {namespace}/{app} are ready", true)

    def phase(self, namespace, name, wanted):
        def true():
            found = self.status(namespace, name)
            phase = found.get("phase")
            if phase != wanted and phase in ("Succeeded", "Failed"):
                raise AssertionError(f"pod {namespace}/{name} is {phase} for good, not {wanted}: {found}")
            return found if phase == wanted else None

        return self.until(f"pod {namespace}/{name} is {wanted}", true)

    # Clients.

    def kubectl(self, *arguments, check=True):
        command = [self.plan["programs"]["kubectl"], "--kubeconfig", self.control.kubeconfig, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT, env={**os.environ, "HOME": str(RUN)}
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(map(str, arguments))}: {done.returncode}: {done.stderr.strip()[-1500:]}")
        return done.stdout

    def sh(self, namespace, name, line, container=None, check=True):
        """The output of a line in a pod's container."""
        chosen = ["-c", container] if container else []
        return self.kubectl("exec", "-n", namespace, name, *chosen, "--", "sh", "-c", line, check=check).strip()

    def vmms(self):
        """The processes of VMMs."""
        found = []
        for place in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if place.joinpath("comm").read_text().startswith("podvisor-vmm"):
                    found.append(int(place.name))
            except OSError:
                pass
        return found

    # Values for the next boot.

    def remember(self, **things):
        path = self.directory / "remembered.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**known, **things}))

    def remembered(self, name):
        path = self.directory / "remembered.json"
        return json.loads(path.read_text()).get(name) if path.exists() else None


def is_ready(pod):
    if pod["metadata"].get("deletionTimestamp"):
        return False
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))


def containers(pod):
    """The statuses of a pod's containers by name, those of init containers too."""
    status = pod["status"]
    return {one["name"]: one for one in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]}
