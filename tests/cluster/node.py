"""Checks of the node's own pods in containerd: its network and its services."""

import json

import api
import objects
from control_plane import kubeconfig
from objects import NODE, TENANTS, container, mount
from outcome import same

# No file may be visible half-copied.
INSTALL = "cp /config/podvisor.conflist /cni/.new && mv /cni/.new /cni/10-podvisor.conflist && exec sleep 1000000"
PROXY = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables", "hostnameOverride": NODE,
    "clusterCIDR": "10.88.0.0/16", "clientConnection": {"kubeconfig": "/config/kubeconfig"}, "bindAddress": "0.0.0.0",
    # The test node's own values suffice, and a pod must not change its limits.
    "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
}  # fmt: skip


def a_node_is_ready_once_a_daemonset_configures_its_network(cluster):
    cluster.until("the node is registered", lambda: cluster.node_condition("Ready"))
    ready = cluster.until("the node waits for its network", lambda: waiting(cluster))
    same("readiness without a network", "False", ready["status"])
    api.create(objects.namespace("kube-system"))
    for handler in ("runc", *TENANTS.values()):
        cluster.keep(objects.runtime_class(handler))
    for tenant in TENANTS:
        cluster.keep(objects.namespace(tenant))
    cluster.keep(objects.config_map("network", "kube-system", {"podvisor.conflist": json.dumps(cluster.host.bridge())}))
    volumes = [objects.host_path("cni", cluster.directory / "cni"), {"name": "config", "configMap": {"name": "network"}}]
    installer = container(INSTALL, volumeMounts=[mount("cni", "/cni"), mount("config", "/config")])
    for namespace in ("kube-system", *TENANTS):
        cluster.until(f"accounts of {namespace}", lambda namespace=namespace: api.find("ServiceAccount", "default", namespace))
    cluster.keep(objects.daemonset("network", [installer], volumes))
    cluster.until("the node is ready", lambda: cluster.node_condition("Ready").get("status") == "True")
    cluster.until("the node may be used", lambda: not api.get("Node", NODE)["spec"].get("taints"))
    cluster.all_ready("kube-system", "network", 1)
    # One pod in a VM, before anything else is asked of the cluster.
    cluster.create(objects.pod("first", "tenant-a", [container()]))
    cluster.ready("tenant-a", "first")
    kernel = cluster.sh("tenant-a", "first", "uname -r")
    if "podvisor" not in kernel:
        raise AssertionError(f"the first pod's kernel is {kernel}")


def waiting(cluster):
    ready = cluster.node_condition("Ready")
    return ready if "network" in ready.get("message", "").lower() or ready.get("status") == "True" else None


def services_are_reached_from_vm_pods_through_kube_proxy(cluster):
    start_proxy(cluster)
    server = container(None, image=objects.NGINX, readinessProbe={"httpGet": {"path": "/", "port": 80}, **objects.PATIENT})
    cluster.create(objects.workload("Deployment", "served", "tenant-a", [server], {"replicas": 2}))
    address = cluster.create(objects.service("served", "tenant-a", "served", 80))["spec"]["clusterIP"]
    for tenant in TENANTS:
        cluster.create(objects.pod("asking", tenant, [container()]))
    backends = cluster.all_ready("tenant-a", "served", 2)
    ask = f"wget -q -O - http://{address}/"
    for tenant in TENANTS:
        cluster.ready(tenant, "asking")
        answered = lambda tenant=tenant: cluster.sh(tenant, "asking", ask, check=False) == "podvisor"  # noqa: E731
        cluster.until(f"a pod of {tenant} reaches {address}", answered)
    # A backend's request to its own service may reach itself.
    for backend in backends:
        name = backend["metadata"]["name"]
        for _ in range(3):
            same(f"what {name} gets of its own service", "podvisor", cluster.sh("tenant-a", name, ask))
    api.patch("Deployment", "served", "tenant-a", {"spec": {"replicas": 0}})
    cluster.until("no backend", lambda: not cluster.pods("tenant-a", "served"))
    cluster.until("a service without a backend is refused", lambda: cluster.sh("tenant-b", "asking", f"{ask} || echo none", check=False) == "none")


def start_proxy(cluster):
    if api.find("DaemonSet", "kube-proxy", "kube-system"):
        return
    config = {"config": json.dumps(PROXY), "kubeconfig": json.dumps(kubeconfig())}
    cluster.keep(objects.config_map("kube-proxy", "kube-system", config))
    proxy = container(None, image=cluster.image("proxy"), command=["kube-proxy", "--config=/config/config"], volumeMounts=[mount("config", "/config")])
    cluster.keep(objects.daemonset("kube-proxy", [proxy], [{"name": "config", "configMap": {"name": "kube-proxy"}}]))
    cluster.all_ready("kube-system", "kube-proxy", 1)
