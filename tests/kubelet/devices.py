"""A device plugin of the tests beside a kubelet: its allotment for a container reaches the container in its
VM."""

import json
import pathlib
import subprocess

PLUGINS = pathlib.Path("/var/lib/kubelet/device-plugins")
RESOURCE = "podvisor.test/fuse"
NOTE = "from the node"
# FUSE's device has the number 10:229 (the kernel's Documentation/admin-guide/devices.txt).
SEEN = [f"mount {NOTE}", "mount is read-only", "device character special file a:e5"]


class Devices:
    """A running plugin. Each check is for `wait` of the session, and returns a line once it is true."""

    def __init__(self, binaries, directory, logs):
        self.ask = [f"{binaries}/tests-pod-resources", directory / "root/pod-resources/kubelet.sock", RESOURCE]
        mount = directory / "allotted"
        mount.mkdir()
        (mount / "note").write_text(NOTE)
        with open(logs / "tests-device-plugin.log", "w") as log:
            self.process = subprocess.Popen(
                [f"{binaries}/tests-device-plugin", PLUGINS, mount], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def resource_is_listed(self, kubelet):
        asked = subprocess.run(self.ask, capture_output=True, text=True)
        healthy = not asked.returncode and json.loads(asked.stdout)["healthy"]
        return healthy and f"devices of {RESOURCE}: {', '.join(sorted(healthy))}"

    def allotment_reaches_the_container(self, kubelet):
        status = kubelet.pods().get("allotted", {})
        end = (status.get("containerStatuses") or [{}])[0].get("state", {}).get("terminated")
        if not end:
            return False
        variable, *seen = end.get("message", "").splitlines() or [""]
        if end.get("exitCode") != 0 or variable not in ("variable fuse-0", "variable fuse-1") or seen != SEEN:
            raise SystemExit(f"kubelet: allotted saw something else: {end}")
        return f"allotted: {variable}, {', '.join(seen)}"

    def stop(self):
        self.process.kill()
        self.process.wait()
