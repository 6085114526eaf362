"""Checks of an overfull node, and of a drained one."""

import os
import subprocess

import api
import objects
from cluster import ROOM_MIB, containers
from objects import TENANTS, container, mount
from outcome import same
from workloads import deploy, serving

# The bound of an emptyDir, and a size above it; in MiB, like all sizes here.
BOUND = 16
BEYOND = 24
# The free space above the kubelet's threshold, and the size of the writes then: more than all unused images,
# because the kubelet removes these first.
LEFT = 64
FLOOD = 400


def fill(amount):
    return f"dd if=/dev/zero of=/full/file bs=1M count={amount} 2>/dev/null; "


def a_pod_that_overfills_its_empty_dir_is_evicted_alone(cluster):
    volumes = [{"name": "full", "emptyDir": {"sizeLimit": f"{BOUND}Mi"}}]
    fills = container(fill(BEYOND) + objects.UNTIL_EVICTED, volumeMounts=[mount("full", "/full")])
    for tenant in TENANTS:
        cluster.create(objects.pod("overfull", tenant, [fills], volumes=volumes))
        cluster.create(objects.pod("modest", tenant, [container("sleep 1 && " + objects.FOREVER, volumeMounts=[mount("full", "/full")])], volumes=volumes))
    for tenant in TENANTS:
        status = cluster.phase(tenant, "overfull", "Failed")
        same("reason", "Evicted", status.get("reason"))
        if "emptydir" not in status.get("message", "").lower():
            raise AssertionError(f"evicted for another reason: {status.get('message')}")
        modest = cluster.ready(tenant, "modest")
        same("restarts of the other", 0, containers(modest)["main"]["restartCount"])


def a_full_disk_evicts_who_fills_it_and_is_over_with_him(cluster):
    tenant = "tenant-a"
    volumes = [{"name": "full", "emptyDir": {}}]
    fills = container("until [ -e /full/go ]; do sleep 1; done; " + fill(FLOOD) + objects.UNTIL_EVICTED, volumeMounts=[mount("full", "/full")])
    cluster.create(objects.pod("filling", tenant, [fills], volumes=volumes))
    cluster.ready(tenant, "filling")
    ballast = cluster.directory / "ballast"
    found = os.statvfs(cluster.directory)
    free = found.f_bavail * found.f_frsize >> 20
    try:
        subprocess.run(["fallocate", "-l", f"{free - ROOM_MIB - LEFT}M", ballast], check=True)
        same("pressure before", "False", cluster.node_condition("DiskPressure")["status"])
        cluster.sh(tenant, "filling", "touch /full/go")
        status = cluster.phase(tenant, "filling", "Failed")
        same("reason", "Evicted", status.get("reason"))
        if "ephemeral-storage" not in status.get("message", ""):
            raise AssertionError(f"evicted for another reason: {status.get('message')}")
    finally:
        ballast.unlink(missing_ok=True)
    cluster.until("the pressure is over", lambda: cluster.node_condition("DiskPressure")["status"] == "False")
    cluster.until("the node takes pods again", lambda: not api.get("Node", objects.NODE)["spec"].get("taints"))
    cluster.create(objects.pod("after", tenant, [container()]))
    cluster.ready(tenant, "after")


def a_drained_node_is_empty_of_tenants_until_it_is_used_again(cluster):
    deploy(cluster)
    before = {tenant: serving(cluster, tenant)["metadata"]["uid"] for tenant in TENANTS}
    try:
        cluster.kubectl("drain", objects.NODE, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--grace-period=10", "--timeout=1200s")
        for tenant in TENANTS:
            placed = [pod["metadata"]["name"] for pod in api.items("Pod", tenant) if pod["spec"].get("nodeName")]
            same(f"pods of {tenant} on the drained node", [], placed)
        cluster.all_ready("kube-system", "network", 1)
    finally:
        cluster.kubectl("uncordon", objects.NODE)
    for tenant, uid in before.items():
        if serving(cluster, tenant)["metadata"]["uid"] == uid:
            raise AssertionError(f"the pod of {tenant} has not been drained")
