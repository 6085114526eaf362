"""Checks of killed programs, and of a restarting node."""

import os
import pathlib
import signal

import api
import objects
from cluster import containers
from objects import TENANTS, container
from outcome import same
from workloads import deploy, serving

def of_the_node():
    return [one["metadata"]["name"] for one in api.items("DaemonSet", "kube-system")]


def census(cluster):
    """The unchanged state: each standing pod's containers, and their restart counts."""
    pods = [(tenant, serving(cluster, tenant)) for tenant in TENANTS]
    pods += [("kube-system", cluster.all_ready("kube-system", name, 1)[0]) for name in of_the_node()]
    return {
        f"{namespace}/{pod['metadata']['name']}/{name}": [one.get("containerID"), one["restartCount"]]
        for namespace, pod in pods for name, one in containers(pod).items()
    }  # fmt: skip


def answering(cluster):
    """Commands get through to a VM of each tenant, and to a pod of the node."""
    for tenant in TENANTS:
        pod = serving(cluster, tenant)["metadata"]["name"]
        cluster.until(f"{tenant} answers", lambda tenant=tenant, pod=pod: cluster.sh(tenant, pod, "echo still", "main", check=False) == "still")
    pod = cluster.all_ready("kube-system", "network", 1)[0]["metadata"]["name"]
    cluster.until("the node's pod answers", lambda: cluster.sh("kube-system", pod, "echo still", check=False) == "still")


def new_pods_start(cluster, name):
    for tenant in TENANTS:
        cluster.create(objects.pod(name, tenant, [container()]))
    for tenant in TENANTS:
        cluster.ready(tenant, name)


def pods_go_on_while_the_daemon_is_killed(cluster):
    deploy(cluster)
    before = census(cluster)
    vmms = sorted(cluster.vmms())
    cluster.mark("kill -9 of the daemon")
    cluster.host.daemon.kill()
    cluster.host.daemon.wait()
    cluster.host.start_daemon()
    answering(cluster)
    new_pods_start(cluster, "after-daemon")
    same("VMMs", vmms, sorted(pid for pid in cluster.vmms() if pid in vmms))
    same("containers", before, census(cluster))


def pods_go_on_while_containerd_is_killed(cluster):
    deploy(cluster)
    before = census(cluster)
    cluster.mark("kill -9 of containerd")
    cluster.containerd.kill()
    # Without it, programs in VMs answer all the same.
    web = api.items("Pod", "tenant-a", "app=web")[0]["metadata"]["name"]
    try:
        same("a VM pod without containerd", "still", cluster.sh("tenant-a", web, "echo still", "main"))
    finally:
        cluster.containerd.start()
    answering(cluster)
    new_pods_start(cluster, "after-containerd")
    same("containers", before, census(cluster))


def a_pod_whose_vmm_is_killed_comes_back(cluster):
    deploy(cluster)
    standing = census(cluster)
    others = set(cluster.vmms())
    cluster.create(objects.pod("struck", "tenant-b", [container()], restartPolicy="Always"))
    first = containers(cluster.ready("tenant-b", "struck"))["main"]["containerID"]
    struck = set(cluster.vmms()) - others
    if not struck:
        raise AssertionError("the pod has no VMM of its own")
    for vmm in struck:
        os.kill(vmm, signal.SIGKILL)

    def again():
        found = containers(api.get("Pod", "struck", "tenant-b")).get("main", {})
        return found.get("restartCount", 0) > 0 and "running" in found.get("state", {}) and found["containerID"] != first

    cluster.until("the container runs again", again)
    cluster.ready("tenant-b", "struck")
    same("its output", "here", cluster.sh("tenant-b", "struck", "echo here"))
    same("all others", standing, census(cluster))


def pods_are_remembered_before_a_reboot(cluster):
    deploy(cluster)
    cluster.remember(census=census(cluster), boot_id=boot_id())


def pods_come_back_after_a_reboot(cluster):
    before, first = cluster.remembered("census"), cluster.remembered("boot_id")
    if not before:
        raise AssertionError("the first boot has remembered no pods")
    if boot_id() == first:
        raise AssertionError(f"the node has still the boot ID {first}")
    cluster.until("the node reports its new boot", lambda: api.get("Node", objects.NODE)["status"]["nodeInfo"]["bootID"] == boot_id())
    cluster.until("the node is ready", lambda: cluster.node_condition("Ready").get("status") == "True")

    def back():
        now = census(cluster)
        # The same pods; each long-running container is another one.
        return now.keys() == before.keys() and all(now[name][0] != before[name][0] for name in before if not name.endswith("/init")) and now

    cluster.until("all pods run again", back)
    answering(cluster)
    new_pods_start(cluster, "after-reboot")


def boot_id():
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
