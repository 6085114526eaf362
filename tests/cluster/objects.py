"""Kubernetes objects of the checks: short forms of manifests."""

NODE = "node1"
BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.29-2"
NGINX = "registry.k8s.io/e2e-test-images/nginx:1.14-2"
# An image with one file, `test-image`, with the content `1`.
FILES = "gcr.io/k8s-staging-cri-tools/test-image-1:latest"
# The tenants: a namespace each, on its own handler.
TENANTS = {"tenant-a": "podvisor", "tenant-b": "podvisor-large"}
FOREVER = "trap 'exit 0' TERM; while :; do sleep 1; done"
# For evicted pods: the kubelet calls a pod Succeeded, evicted or not, if all its containers have ended with
# 0.
UNTIL_EVICTED = FOREVER.replace("exit 0", "exit 143")
# Probes and hooks run in a slow node.
PATIENT = {"timeoutSeconds": 60, "periodSeconds": 5, "failureThreshold": 60}


def metadata(name, namespace, labels=None):
    return {"name": name, "namespace": namespace, "labels": {"app": name, **(labels or {})}}


def namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def runtime_class(handler):
    overhead = {"podFixed": {"memory": "80Mi"}} if handler != "runc" else None
    found = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": handler}, "handler": handler}
    return {**found, **({"overhead": overhead} if overhead else {})}


def container(line=FOREVER, name="main", image=BUSYBOX, **more):
    command = {"command": ["sh", "-c", line]} if line else {}
    return {"name": name, "image": image, "imagePullPolicy": "IfNotPresent", **command, **more}


def spec(containers, handler, **more):
    """A pod's specification. A handler of none is left to the runtime."""
    named = {"runtimeClassName": handler} if handler else {}
    return {"terminationGracePeriodSeconds": 5, "enableServiceLinks": False, **named, "containers": containers, **more}


def pod(name, tenant, containers, **more):
    """A pod of a tenant on its handler."""
    more.setdefault("restartPolicy", "Never")
    handler = more.pop("handler", TENANTS.get(tenant))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata(name, tenant), "spec": spec(containers, handler, **more)}


def workload(kind, name, tenant, containers, more=None, **of_pods):
    """A Deployment, StatefulSet or DaemonSet; `more` extends its specification."""
    handler = of_pods.pop("handler", TENANTS.get(tenant))
    template = {"metadata": {"labels": {"app": name}}, "spec": spec(containers, handler, **of_pods)}
    own = {"selector": {"matchLabels": {"app": name}}, "template": template, **(more or {})}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata(name, tenant), "spec": own}


def job(name, tenant, containers, **more):
    template = {"spec": spec(containers, TENANTS[tenant], restartPolicy="Never")}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(name, tenant), "spec": {"template": template, **more}}


def daemonset(name, containers, volumes):
    """A pod of the node itself: with the node's network, privileged, and never evicted."""
    for one in containers:
        one.setdefault("securityContext", {"privileged": True})
    return workload(
        "DaemonSet", name, "kube-system", containers, handler=None, hostNetwork=True, priorityClassName="system-node-critical",
        tolerations=[{"operator": "Exists"}], volumes=volumes,
    )  # fmt: skip


def config_map(name, tenant, data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(name, tenant), "data": data}


def service(name, tenant, app, port):
    own = {"selector": {"app": app}, "ports": [{"port": port, "targetPort": port}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata(name, tenant), "spec": own}


def claim(name, tenant, storage_class, mode="Filesystem", volume=None):
    own = {
        "accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "volumeMode": mode,
        "resources": {"requests": {"storage": "16Mi"}}, **({"volumeName": volume} if volume else {}),
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": tenant}, "spec": own}


def volume(name, storage_class, source, mode="Filesystem"):
    """A PersistentVolume of this node."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    own = {
        "capacity": {"storage": "16Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "volumeMode": mode,
        "persistentVolumeReclaimPolicy": "Retain", **source,
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": own}


def host_path(name, path, kind="DirectoryOrCreate"):
    return {"name": name, "hostPath": {"path": str(path), "type": kind}}


def mount(name, path, **more):
    return {"name": name, "mountPath": str(path), **more}


def execute(*command):
    return {"exec": {"command": ["sh", "-c", *command]}}
