"""The API server as the checks see it: objects as dictionaries, without kubectl's start for each call."""

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request

from control_plane import API, TOKEN

# By kind: group and version, the name in a path, whether it is in a namespace.
KINDS = {
    "Namespace": ("api/v1", "namespaces", False),
    "Node": ("api/v1", "nodes", False),
    "PersistentVolume": ("api/v1", "persistentvolumes", False),
    "RuntimeClass": ("apis/node.k8s.io/v1", "runtimeclasses", False),
    "StorageClass": ("apis/storage.k8s.io/v1", "storageclasses", False),
    "CSIDriver": ("apis/storage.k8s.io/v1", "csidrivers", False),
    "CSINode": ("apis/storage.k8s.io/v1", "csinodes", False),
    "Pod": ("api/v1", "pods", True),
    "Event": ("api/v1", "events", True),
    "ServiceAccount": ("api/v1", "serviceaccounts", True),
    "ConfigMap": ("api/v1", "configmaps", True),
    "Service": ("api/v1", "services", True),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims", True),
    "DaemonSet": ("apis/apps/v1", "daemonsets", True),
    "Deployment": ("apis/apps/v1", "deployments", True),
    "StatefulSet": ("apis/apps/v1", "statefulsets", True),
    "Job": ("apis/batch/v1", "jobs", True),
}
# A slow server lets handshakes and requests time out while its clients are many.
REPEATED_FOR = 600
AGAIN = (429, 500, 503, 504)
PATCHES = {"merge": "application/merge-patch+json", "strategic": "application/strategic-merge-patch+json"}


class Refused(AssertionError):
    """The server's answer is an error."""

    def __init__(self, what, code, said):
        super().__init__(f"{what}: {code} {said}")
        self.code = code


def path(kind, namespace=None, name=None, part=None):
    group, plural, namespaced = KINDS[kind]
    place = f"/namespaces/{namespace}" if namespaced and namespace else ""
    return f"/{group}{place}/{plural}" + (f"/{name}" if name else "") + (f"/{part}" if part else "")


def call(method, where, body=None, kind="application/json"):
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json", "Content-Type": kind}
    data = None if body is None else json.dumps(body).encode()
    deadline = time.monotonic() + REPEATED_FOR
    while True:
        request = urllib.request.Request(API + where, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=120) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            failure = Refused(f"{method} {where}", error.code, message(error.read().decode(errors="replace")))
            if error.code not in AGAIN:
                raise failure from None
        except (OSError, http.client.HTTPException) as error:
            failure = error
        if time.monotonic() > deadline:
            raise failure
        time.sleep(2)


def message(said):
    try:
        return json.loads(said).get("message", said)
    except ValueError:
        return said


def get(kind, name, namespace=None):
    return call("GET", path(kind, namespace, name))


def find(kind, name, namespace=None):
    """The object, or nothing if it does not exist."""
    try:
        return get(kind, name, namespace)
    except Refused as refused:
        if refused.code == 404:
            return None
        raise


def items(kind, namespace=None, selector=""):
    return call("GET", path(kind, namespace) + (f"?labelSelector={selector}" if selector else ""))["items"]


def create(thing):
    """Creates an object. If it already exists because of an earlier request with a lost answer, it is the
    requested one."""
    metadata = thing["metadata"]
    try:
        return call("POST", path(thing["kind"], metadata.get("namespace")), thing)
    except Refused as refused:
        if refused.code == 409:
            return get(thing["kind"], metadata["name"], metadata.get("namespace"))
        raise


def patch(kind, name, namespace, change, part=None, how="strategic"):
    return call("PATCH", path(kind, namespace, name, part), change, PATCHES[how])


def delete(kind, name, namespace=None, grace=None):
    options = {"propagationPolicy": "Background", **({} if grace is None else {"gracePeriodSeconds": grace})}
    try:
        call("DELETE", path(kind, namespace, name), options)
    except Refused as refused:
        if refused.code != 404:
            raise
