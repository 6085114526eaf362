"""Checks of volumes: mounts of a plugin on the node, disks, and images."""

import pathlib
import subprocess

import api
import objects
from objects import NODE, TENANTS, container, mount
from outcome import Skipped, same

DRIVER = "csi.podvisor.test"
PLUGIN = "csi"
LOCAL = "local"
DISK_MIB = 16


def a_mount_of_a_storage_plugin_is_seen_in_a_vm_pod(cluster):
    start_plugin(cluster)
    cluster.create(objects.volume("mounted", PLUGIN, source(cluster, "mounted")))
    cluster.create(objects.claim("mounted", "tenant-a", PLUGIN, volume="mounted"))
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "mounted"}}]
    cluster.create(objects.pod("mounting", "tenant-a", [container(volumeMounts=[mount("data", "/data")])], volumes=volumes))
    cluster.ready("tenant-a", "mounting")
    there = cluster.directory / "volumes/mounted"
    cluster.sh("tenant-a", "mounting", "echo from the pod > /data/pod")
    same("what the pod wrote, on the node", "from the pod\n", (there / "pod").read_text())
    (there / "node").write_text("from the node\n")
    same("what the node wrote, in the pod", "from the node", cluster.sh("tenant-a", "mounting", "cat /data/node"))
    same("mounts of the volume", 1, len(published(cluster)))
    api.delete("Pod", "mounting", "tenant-a", grace=2)
    cluster.until("the volume is unpublished", lambda: not published(cluster))
    same("what is left on the volume", "from the pod\n", (there / "pod").read_text())


def published(cluster):
    """Mounts of the plugin's volumes in the kubelet's directory, as the node sees them."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if f"{cluster.root}/pods/" in line and "kubernetes.io~csi" in line.split()[4]]


def source(cluster, name):
    return {"csi": {"driver": DRIVER, "volumeHandle": name}}


def start_plugin(cluster):
    if api.find("DaemonSet", "csi", "kube-system"):
        return
    cluster.keep({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"attachRequired": False, "podInfoOnMount": False, "volumeLifecycleModes": ["Persistent"]},
    })  # fmt: skip
    for name in (PLUGIN, LOCAL):
        cluster.keep({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
        })  # fmt: skip
    data = cluster.directory / "volumes"
    command = ["tests-csi", f"--kubelet={cluster.root}", f"--data={data}", f"--node={NODE}"]
    mounts = [mount("kubelet", cluster.root, mountPropagation="Bidirectional"), mount("data", data)]
    plugin = container(None, image=cluster.image("csi"), command=command, volumeMounts=mounts)
    cluster.keep(objects.daemonset("csi", [plugin], [objects.host_path("kubelet", cluster.root), objects.host_path("data", data)]))
    cluster.all_ready("kube-system", "csi", 1)

    def known():
        drivers = (api.find("CSINode", NODE) or {}).get("spec", {}).get("drivers") or []
        return any(driver["name"] == DRIVER for driver in drivers)

    cluster.until("the kubelet knows the plugin", known)


def a_statefulset_keeps_its_block_and_filesystem_volumes(cluster):
    start_plugin(cluster)
    devices = []
    try:
        for number in range(2):
            devices.append(disk(cluster, f"block-{number}"))
            block = {"local": {"path": devices[-1]}}
            cluster.create(objects.volume(f"block-{number}", LOCAL, block, "Block"))
            cluster.create(objects.volume(f"files-{number}", PLUGIN, source(cluster, f"files-{number}")))
        keeps_its_volumes(cluster)
    finally:
        # Pods and claims have to be gone before their devices are.
        cluster.clear()
        for device in devices:
            subprocess.run(["losetup", "-d", device], check=True)


def disk(cluster, name):
    """A block device of the node."""
    image = cluster.directory / f"{name}.img"
    subprocess.run(["truncate", "-s", f"{DISK_MIB}M", image], check=True)
    return subprocess.run(["losetup", "-f", "--show", image], check=True, capture_output=True, text=True).stdout.strip()


def keeps_its_volumes(cluster):
    claims = [objects.claim("files", None, PLUGIN), objects.claim("block", None, LOCAL, "Block")]
    for claim in claims:
        claim["metadata"].pop("namespace")
    main = container(volumeMounts=[mount("files", "/files")], volumeDevices=[{"name": "block", "devicePath": "/dev/data"}])
    more = {"serviceName": "stateful", "replicas": 2, "volumeClaimTemplates": claims}
    cluster.create(objects.workload("StatefulSet", "stateful", "tenant-b", [main], more))
    for number in range(2):
        for kind in ("files", "block"):
            # Made by the controller, so nothing else would remove them.
            cluster.made.insert(0, ("PersistentVolumeClaim", f"{kind}-stateful-{number}", "tenant-b"))
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.all_ready("tenant-b", "stateful", 2)}
    for name in pods:
        cluster.sh("tenant-b", name, f"echo {name} > /files/name && echo {name} | dd of=/dev/data bs=512 conv=sync,fsync 2>/dev/null")
        api.delete("Pod", name, "tenant-b", grace=2)
    cluster.until("all pods are new", lambda: renewed(cluster, pods))
    cluster.all_ready("tenant-b", "stateful", 2)
    for name in pods:
        same(f"the file of {name}", name, cluster.sh("tenant-b", name, "cat /files/name"))
        same(f"the disk of {name}", name, cluster.sh("tenant-b", name, "head -n 1 /dev/data"))
        size = cluster.sh("tenant-b", name, "blockdev --getsize64 /dev/data")
        same(f"the disk's size in {name}", str(DISK_MIB << 20), size)


def renewed(cluster, pods):
    found = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.pods("tenant-b", "stateful")}
    return found.keys() == pods.keys() and not found.items() & pods.items()


def with_image(name, tenant, **more):
    volumes = [{"name": "image", "image": {"reference": objects.FILES, "pullPolicy": "IfNotPresent"}}]
    main = container(volumeMounts=[mount("image", "/image")])
    return objects.pod(name, tenant, [main], volumes=volumes, **more)


def image_volumes_are_read_by_vm_pods(cluster):
    cluster.create(*(with_image("of-image", tenant) for tenant in TENANTS))
    for tenant in TENANTS:
        cluster.ready(tenant, "of-image")
        same("the image's file", "1", cluster.sh(tenant, "of-image", "cat /image/test-image"))
        same("a file put into an image", "refused", cluster.sh(tenant, "of-image", "touch /image/new 2>/dev/null || echo refused"))


def image_volumes_are_read_by_pods_of_the_node(cluster):
    if cluster.containerd.version < (2, 1):
        raise Skipped(f"containerd {'.'.join(map(str, cluster.containerd.version))} has no image volumes (2.1 has)")
    cluster.create(with_image("of-image", "kube-system", handler="runc"))
    cluster.ready("kube-system", "of-image")
    same("the image's file", "1", cluster.sh("kube-system", "of-image", "cat /image/test-image"))
