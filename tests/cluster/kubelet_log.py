"""The check of the kubelet's log: each error line is absent, or on the list below with its reason."""

import re

from kubelet import EXPECTED

ERROR = re.compile(r"^E\d{4} ")
# Error lines of a cluster's kubelet without a fault in the runtime, each with its reason.
ALLOWED = [
    (r"Housekeeping took longer than expected", "the node is slow"),
    (r"request\.go:\d+\] .*(deadline exceeded|reading response body)", "an answer of the API server took longer than the kubelet waits"),
    (r"unable to return a response in the time allotted|failed to fetch token: Timeout", "for the same reason"),
    (r"unmounted volumes=\[kube-api-access-\w+\].*deadline exceeded", "for the same reason a pod's token came late"),
    (r"nodelease\.go|controller\.go:\d+\] .*lease", "the lease is renewed again later, for the same reason"),
    (r"kubelet_node_status\.go:\d+\] .*Error updating node status, will retry", "for the same reason"),
    (r"Failed to read data from checkpoint.*checkpoint is not found", "a kubelet's first start"),
    (r"Node not becoming ready in time after startup", "nothing configures the network before the DaemonSet does"),
    (r"conn\.go:\d+\] .*Error on socket receive.*closed network connection", "a client of a stream has gone when its command ended"),
    (r"update node status exceeds retry count|Server rejected event .*Timeout", "for the same reason"),
    (r"cadvisor_stats_provider.*unable to find data in memory cache", "a pod's cgroup is younger than cAdvisor's last look"),
    (r"failed to read (memory|cpu)\S* .*no such file", "a pod's cgroup has gone between two looks of the kubelet"),
    (r"ExecSync cmd .*code = FailedPrecondition", "a probe meets a container that has just ended"),
    (r"Failed to remove container.*code = NotFound", "the kubelet has removed the container by another of its threads"),
    (r"failed to sync (configmap|secret) cache", "an object of a new pod has not come from the API server yet"),
    (r"NetworkPluginNotReady|network is not ready", "for the same reason"),
    (r"has ended, so its log does not go on", "the kubelet rotates the log of a container that has just ended"),
    (r"RegisterPlugin error -- dial failed at socket", "after a reboot a plugin's socket is there before its pod is"),
    (r"object \S+/\S+ not registered", "a kubelet that starts anew has not registered its pods' objects yet"),
]
# Lines of a call to a runtime just killed by a check; only allowed after its mark.
KILLED = "kill -9"
ALLOWED_THEN = r"code = Unavailable|connection refused"
SHOWN = 12


def the_kubelets_log_has_no_error_without_a_reason(cluster):
    found = unexplained(cluster.kubelet.log.read_text(errors="replace").splitlines())
    if found:
        raise AssertionError(f"{len(found)} lines, with what was done before:\n    " + "\n    ".join(found[:SHOWN]))


def unexplained(lines):
    """Unexplained error lines, once for each place in the kubelet's code, after their preceding mark."""
    found, mark, allowed = {}, "", re.compile("|".join(pattern for pattern, _ in ALLOWED) or r"(?!)")
    allowed_then = re.compile(ALLOWED_THEN)
    for line in lines:
        if line.startswith("-- "):
            mark = line
        elif ERROR.match(line) and not EXPECTED.search(line) and not allowed.search(line):
            if KILLED in mark and allowed_then.search(line):
                continue
            place = re.search(r"(\w+\.go:\d+)\]", line)
            found.setdefault(place[1] if place else line, f"{mark}: {line[:600]}")
    return list(found.values())
