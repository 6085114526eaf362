"""The control plane as plain processes on the node: etcd and an API server and, for a whole cluster, a
scheduler and controllers.

Shared by the clients' tests. Their pods name their node and so need neither of the last two.
"""

import json
import os
import pathlib
import ssl
import subprocess
import tempfile
import time
import urllib.request

TOKEN = "tests"
API = "https://127.0.0.1:6443"
# A registering kubelet's address must not be a loopback one; the node gets this one meanwhile.
ADDRESS = "10.99.0.1"
# The software node is slow: starting an API server there takes minutes.
LIMIT = 1200
STORE = "http://127.0.0.1:2379"
UNUSED = (
    "certificatesigningrequest-signing-controller", "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller", "horizontal-pod-autoscaler-controller", "cronjob-controller",
    "ttl-after-finished-controller", "resourcequota-controller", "clusterrole-aggregation-controller", "node-ipam-controller",
    "node-route-controller", "service-lb-controller", "replicationcontroller-controller",
)  # fmt: skip


class ControlPlane:
    """etcd and an API server. Their data is below `directory`; the store's files are in memory, or there too
    if they are `kept`.

    `users` are further lines of the token file.
    """

    def __init__(self, programs, directory, logs, options=(), kept=False, authorization="AlwaysAllow", users=""):
        self.programs, self.logs = programs, logs
        self.directory = pathlib.Path(directory) / "cluster"
        self.directory.mkdir(exist_ok=True)
        self.key = self.directory / "accounts.key"
        if not self.key.exists():
            subprocess.run(["openssl", "genrsa", "-out", self.key, "2048"], check=True, capture_output=True)
        (self.directory / "tokens").write_text(f"{TOKEN},admin,admin,system:masters\n{users}")
        self.kubeconfig = self.directory / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(kubeconfig()))
        # In memory by default: an API server gives up if it waits too long for its store.
        self.memory = None if kept else tempfile.TemporaryDirectory(dir="/dev/shm")
        self.processes = {}
        self._start("etcd", self._store())
        self.server = self._server([f"--authorization-mode={authorization}", *options])
        self._start("apiserver", self.server)
        self._wait()

    def _store(self):
        data = self.memory.name if self.memory else self.directory / "etcd"
        return [
            self.programs["etcd"], "--data-dir", data, "--listen-client-urls", STORE, "--advertise-client-urls", STORE,
            "--listen-peer-urls", "http://127.0.0.1:2380",
        ]  # fmt: skip

    def _server(self, options):
        return [
            self.programs["apiserver"], f"--etcd-servers={STORE}", "--bind-address=127.0.0.1", "--secure-port=6443",
            f"--advertise-address={ADDRESS}", "--endpoint-reconciler-type=none", f"--cert-dir={self.directory / 'certificates'}",
            "--service-cluster-ip-range=10.96.0.0/16", "--service-account-issuer=https://localhost",
            f"--service-account-key-file={self.key}", f"--service-account-signing-key-file={self.key}",
            f"--token-auth-file={self.directory / 'tokens'}",
            "--kubelet-preferred-address-types=InternalIP", "--allow-privileged=true", *options,
        ]  # fmt: skip

    def start_controllers(self):
        """The scheduler and the controllers. There is no other leader, and a slow node is not a dead one."""
        alone = [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0"]
        self._start("scheduler", [self.programs["scheduler"], *alone])
        self._start("controllers", [
            self.programs["controllers"], *alone, f"--service-account-private-key-file={self.key}",
            f"--root-ca-file={self.directory / 'certificates/apiserver.crt'}", "--node-monitor-grace-period=30m",
            # Every watch costs a slow node something; no check uses these.
            "--controllers=*," + ",".join(f"-{name}" for name in UNUSED),
        ])  # fmt: skip

    def attend(self):
        """Restarts ended processes, like an init system: on a slow node, a leader gives up now and then."""
        for name, (process, command) in list(self.processes.items()):
            if process.poll() is not None:
                self._start(name, command)

    def _start(self, name, command):
        with open(self.logs / f"{name}.log", "a") as output:
            # There is more memory than time.
            environment = {**os.environ, "GOGC": "300"}
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
        self.processes[name] = (process, command)

    def _wait(self):
        """Until it is ready. If a first start takes too long for it, it ends itself; the next one has less to
        do."""
        deadline = time.monotonic() + LIMIT
        context = ssl._create_unverified_context()
        while True:
            request = urllib.request.Request(f"{API}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
            try:
                urllib.request.urlopen(request, context=context, timeout=30).read()
                return
            except OSError as error:
                if time.monotonic() > deadline or self.processes["etcd"][0].poll() is not None:
                    raise SystemExit(f"the API server does not become ready: {error}") from error
                self.attend()
                time.sleep(1)

    def stop(self):
        """Ends all, the store last and in order."""
        for name in reversed(self.processes):
            process, _ = self.processes[name]
            process.terminate() if name == "etcd" else process.kill()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        if self.memory:
            self.memory.cleanup()


def take_address():
    """Gives the node an address for the kubelet's registration."""
    subprocess.run(["ip", "address", "replace", f"{ADDRESS}/32", "dev", "lo"], check=True)


def kubeconfig():
    """JSON is YAML, too."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": {"server": API, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "tests", "user": {"token": TOKEN}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        "current-context": "tests",
    }
