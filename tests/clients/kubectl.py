"""kubectl as a client: through an API server and a real kubelet."""

import json
import os
import pathlib
import ssl
import subprocess
import tempfile
import time
import urllib.request

import pods

# What kubectl reads to speak SPDY instead of WebSocket.
VARIABLES = ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS")
TOKEN = "clients"
API = "https://127.0.0.1:6443"
# A kubelet that registers may not be at a loopback address; this one is given to the node for the while.
ADDRESS = "10.99.0.1"
# The software node is slow: starting an API server there takes minutes.
LIMIT = 900


class Cluster:
    """etcd and an API server: no scheduler, since pods name their node, and no controllers."""

    def __init__(self, apiserver, etcd, directory, logs, authorization="AlwaysAllow", users=""):
        """`users` are further lines of the token file."""
        directory = pathlib.Path(directory) / "cluster"
        directory.mkdir()
        key = directory / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (directory / "tokens").write_text(f"{TOKEN},admin,admin,system:masters\n{users}")
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(kubeconfig()))
        # In memory: an API server that waits too long for its store gives up.
        self.data = tempfile.TemporaryDirectory(dir="/dev/shm")
        url = "http://127.0.0.1:2379"
        store = [
            etcd, "--data-dir", self.data.name, "--listen-client-urls", url, "--advertise-client-urls", url,
            "--listen-peer-urls", "http://127.0.0.1:2380",
        ]  # fmt: skip
        server = [
            apiserver, f"--etcd-servers={url}", "--bind-address=127.0.0.1", "--secure-port=6443", f"--advertise-address={ADDRESS}",
            "--endpoint-reconciler-type=none", f"--cert-dir={directory / 'certificates'}", "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://localhost", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", f"--token-auth-file={directory / 'tokens'}",
            f"--authorization-mode={authorization}", "--disable-admission-plugins=ServiceAccount",
            "--kubelet-preferred-address-types=InternalIP",
        ]  # fmt: skip
        self.store = start(store, logs / "etcd.log")
        self.server = start(server, logs / "apiserver.log")
        self._wait(lambda: start(server, logs / "apiserver.log"))

    def _wait(self, again):
        """Until it is ready. Where a first start takes too long for it, it ends itself; the next one has less to do."""
        deadline = time.monotonic() + LIMIT
        context = ssl._create_unverified_context()
        while True:
            request = urllib.request.Request(f"{API}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
            try:
                urllib.request.urlopen(request, context=context, timeout=30).read()
                return
            except OSError as error:
                if time.monotonic() > deadline or self.store.poll() is not None:
                    raise SystemExit(f"clients: the API server does not become ready: {error}") from error
                if self.server.poll() is not None:
                    self.server = again()
                time.sleep(1)

    def stop(self):
        for process in (self.server, self.store):
            process.kill()
            process.wait()
        self.data.cleanup()


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
            # kubectl would check the manifest against the API's description, which a slow server has long after it is ready.
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
        """A call that may be repeated: a slow API server lets handshakes and requests time out while its clients are many."""
        deadline = time.monotonic() + LIMIT
        while True:
            done = subprocess.run([*self.binary, *arguments], env=self.environment, capture_output=True, text=True)
            if done.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"kubectl {' '.join(map(str, arguments))}: {done.stderr}")
            time.sleep(1)


def kubeconfig():
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "clients", "cluster": {"server": API, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "clients", "user": {"token": TOKEN}}],
        "contexts": [{"name": "clients", "context": {"cluster": "clients", "user": "clients"}}],
        "current-context": "clients",
    }


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
            # Nobody takes away what a new node is tainted with.
            "tolerations": [{"operator": "Exists"}],
            "containers": [{**container, "stdin": terminal, "tty": terminal}],
        },
    }


def start(command, log):
    with open(log, "a") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
