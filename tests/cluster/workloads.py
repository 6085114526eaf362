"""Checks of tenants' workloads in VMs, and of requests to a running pod."""

import json

import api
import objects
from cluster import containers, is_ready
from objects import TENANTS, container, execute, mount
from outcome import Skipped, same

SHARED = {"name": "shared", "emptyDir": {}}
# The server of `web`, from the image of all pods.
SERVE = "cp -r /shared /www && echo $VERSION > /www/version && exec httpd -f -p 8080 -h /www"


def web(tenant, version):
    """A Deployment with an init container, a side-car to be started before the rest, and all kinds of probes."""
    shared = [mount("shared", "/shared")]
    initial = container("echo initialized > /shared/init", "init", volumeMounts=shared)
    sidecar = container(
        "test -e /shared/init && touch /shared/beside; " + objects.FOREVER, "beside", volumeMounts=shared, restartPolicy="Always",
        startupProbe={**execute("test -e /shared/beside"), **objects.PATIENT},
    )  # fmt: skip
    http = {"httpGet": {"path": "/version", "port": 8080}, **objects.PATIENT}
    main = container(
        SERVE, env=[{"name": "VERSION", "value": version}], volumeMounts=shared, startupProbe=http, readinessProbe=http,
        # Seldom: in a slow node each command takes seconds, and these pods stay.
        livenessProbe={**execute("pidof httpd"), **objects.PATIENT, "periodSeconds": 60},
    )  # fmt: skip
    more = {"replicas": 1, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}
    return objects.workload("Deployment", "web", tenant, [main], more, initContainers=[initial, sidecar], volumes=[SHARED])


def deploy(cluster):
    """The tenants' permanent Deployments: the node's failures happen to them."""
    for tenant in TENANTS:
        if not api.find("Deployment", "web", tenant):
            cluster.keep(web(tenant, "1"))


def serving(cluster, tenant):
    """The one pod of a tenant's Deployment, ready."""
    return cluster.all_ready(tenant, "web", 1)[0]


def deployments_start_in_order_and_roll_over(cluster):
    deploy(cluster)
    first = {}
    for tenant in TENANTS:
        pod = serving(cluster, tenant)
        first[tenant] = pod["metadata"]["name"]
        found = containers(pod)
        started = [found["init"]["state"]["terminated"]["finishedAt"], found["main"]["state"]["running"]["startedAt"]]
        beside = found["beside"]["state"]["running"]["startedAt"]
        if not started[0] <= beside <= started[1]:
            raise AssertionError(f"init ended, side-car and main began at {started[0]}, {beside}, {started[1]}")
        same("side-car", (True, 0), (found["beside"]["ready"], found["beside"]["restartCount"]))
        same("the file of init", "initialized", cluster.sh(tenant, first[tenant], "cat /www/init", "main"))
    for tenant in TENANTS:
        change = {"spec": {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "VERSION", "value": "2"}]}]}}}}
        api.patch("Deployment", "web", tenant, change)
    for tenant in TENANTS:
        cluster.until(f"the pod of {tenant} is another", lambda tenant=tenant: rolled(cluster, tenant, first[tenant]))
        pod = serving(cluster, tenant)
        same("version", "2", cluster.sh(tenant, pod["metadata"]["name"], "wget -q -O - http://127.0.0.1:8080/version", "main"))


def rolled(cluster, tenant, first):
    """While it rolls over, one pod at least is ready."""
    pods = cluster.pods(tenant, "web")
    if not any(map(is_ready, pods)):
        raise AssertionError(f"no pod of {tenant} is ready during its update")
    return first not in [pod["metadata"]["name"] for pod in pods]


def a_failing_liveness_probe_restarts_its_container_alone(cluster):
    probe = {**execute("test ! -e /tmp/dead"), "periodSeconds": 5, "timeoutSeconds": 60, "failureThreshold": 1}
    pods = [objects.pod("probed", tenant, [container(livenessProbe=probe), container(name="other")], restartPolicy="Always") for tenant in TENANTS]
    cluster.create(*pods)
    for tenant in TENANTS:
        cluster.ready(tenant, "probed")
        cluster.sh(tenant, "probed", "touch /tmp/dead", "main")
    for tenant in TENANTS:
        cluster.until("a restart", lambda tenant=tenant: containers(api.get("Pod", "probed", tenant))["main"]["restartCount"] > 0)
        found = containers(cluster.ready(tenant, "probed"))
        same("restarts of main and other", (1, 0), (found["main"]["restartCount"], found["other"]["restartCount"]))


def jobs_succeed_and_fail(cluster):
    good = container("echo $((6 * 7)) > /dev/termination-log; sleep 1")
    bad = container("echo no > /dev/termination-log; exit 3")
    for tenant in TENANTS:
        cluster.create(objects.job("good", tenant, [good], completions=2, parallelism=2), objects.job("bad", tenant, [bad], backoffLimit=0))
    for tenant in TENANTS:
        for name, condition, code, said in (("good", "Complete", 0, "42"), ("bad", "Failed", 3, "no")):
            cluster.until(f"job {name} of {tenant} is {condition}", lambda: ended(tenant, name, condition))
            pods = api.items("Pod", tenant, f"job-name={name}")
            ends = [containers(pod)["main"]["state"]["terminated"] for pod in pods]
            expected = [(code, said)] * (2 if name == "good" else 1)
            same(f"ends of {name}", expected, [(end["exitCode"], end.get("message", "").strip()) for end in ends])


def ended(tenant, name, condition):
    conditions = api.get("Job", name, tenant)["status"].get("conditions") or []
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)


def changed_config_maps_reach_running_pods(cluster):
    for tenant in TENANTS:
        cluster.create(objects.config_map("settings", tenant, {"level": "one"}))
        volumes = [{"name": "settings", "configMap": {"name": "settings"}}]
        cluster.create(objects.pod("configured", tenant, [container(volumeMounts=[mount("settings", "/settings")])], volumes=volumes))
    for tenant in TENANTS:
        cluster.ready(tenant, "configured")
        same("the first content", "one", cluster.sh(tenant, "configured", "cat /settings/level"))
        api.patch("ConfigMap", "settings", tenant, {"data": {"level": "two", "more": "three"}})
    for tenant in TENANTS:
        read = lambda tenant=tenant: cluster.sh(tenant, "configured", "cat /settings/level; echo; cat /settings/more", check=False)  # noqa: E731
        cluster.until(f"the change reaches {tenant}", lambda read=read: read() == "two\nthree")


LIMITS = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max"


def containers_are_resized_up_and_down_in_place(cluster):
    # Both tenants' pods fit on one processor.
    sizes = {"up": ("96Mi", "200m"), "down": ("48Mi", "50m")}
    resources = lambda memory, cpu: {kind: {"memory": memory, "cpu": cpu} for kind in ("limits", "requests")}  # noqa: E731
    policy = [{"resourceName": name, "restartPolicy": "NotRequired"} for name in ("cpu", "memory")]
    for tenant in TENANTS:
        cluster.create(objects.pod("resized", tenant, [container(resources=resources("64Mi", "100m"), resizePolicy=policy)]))
    before = {tenant: containers(cluster.ready(tenant, "resized"))["main"]["containerID"] for tenant in TENANTS}
    for way, (memory, cpu) in sizes.items():
        wanted = resources(memory, cpu)
        for tenant in TENANTS:
            change = {"spec": {"containers": [{"name": "main", "resources": wanted}]}}
            api.patch("Pod", "resized", tenant, change, "resize")
        for tenant in TENANTS:
            status = lambda tenant=tenant: containers(api.get("Pod", "resized", tenant))["main"]  # noqa: E731
            cluster.until(f"{tenant} is resized {way}", lambda status=status: status().get("resources") == wanted)
            expected = f"{int(memory[:-2]) << 20}\n{int(cpu[:-1]) * 100} 100000"
            same(f"limits of {tenant} as it sees them", expected, cluster.sh(tenant, "resized", LIMITS))
            same("container and restarts", (before[tenant], 0), (status()["containerID"], status()["restartCount"]))


MAP = "read inside outside count < /proc/self/uid_map; echo $inside $count; id -u"


def vm_pods_have_user_namespaces(cluster):
    for tenant, handler in TENANTS.items():
        features = handler_features(handler)
        same(f"user namespaces of {handler}", True, features.get("userNamespaces"))
        cluster.create(objects.pod("mapped", tenant, [container(volumeMounts=[mount("shared", "/shared")])], hostUsers=False, volumes=[SHARED]))
    for tenant in TENANTS:
        cluster.ready(tenant, "mapped")
        same(f"the map of {tenant}", "0 65536\n0", cluster.sh(tenant, "mapped", MAP))
        same("the owner of a file", "0", cluster.sh(tenant, "mapped", "touch /shared/file && stat -c %u /shared/file"))


def pods_of_the_node_have_user_namespaces(cluster):
    if not handler_features("runc").get("userNamespaces"):
        version = ".".join(map(str, cluster.containerd.version))
        raise Skipped(f"containerd {version} with the node's runc does not list user namespaces (2.0 with runc 1.2 does)")
    cluster.create(objects.pod("mapped", "kube-system", [container()], handler="runc", hostUsers=False))
    cluster.ready("kube-system", "mapped")
    same("the map", "0 65536\n0", cluster.sh("kube-system", "mapped", MAP))


def handler_features(name):
    handlers = api.get("Node", objects.NODE)["status"].get("runtimeHandlers") or []
    return next((handler.get("features") or {} for handler in handlers if handler["name"] == name), {})


def kubectl_debug_sees_its_target(cluster):
    for tenant in TENANTS:
        cluster.create(objects.pod("debugged", tenant, [container("exec sleep 77777"), container(name="other")]))
    for tenant in TENANTS:
        before = containers(cluster.ready(tenant, "debugged"))["main"]["containerID"]
        line = "until ps | grep -q 'sleep 7777[7]'; do sleep 1; done; cat /proc/1/cmdline | tr '\\0' ' ' > /dev/termination-log"
        command = ["--image", objects.BUSYBOX, "--image-pull-policy=IfNotPresent", "--target", "main", "-c", "look", "--profile=general"]
        cluster.kubectl("debug", "-n", tenant, "debugged", *command, "--", "sh", "-c", line)

        def seen(tenant=tenant):
            found = api.get("Pod", "debugged", tenant)["status"].get("ephemeralContainerStatuses") or [{}]
            return found[0].get("state", {}).get("terminated")

        end = cluster.until("the debugging container has looked", seen)
        same("what it has seen", (0, "sleep 77777"), (end["exitCode"], end.get("message", "").strip()))
        found = containers(api.get("Pod", "debugged", tenant))["main"]
        same("its target", (before, 0), (found["containerID"], found["restartCount"]))


def hooks_run_before_a_container_ends(cluster):
    there = cluster.directory / "hooks"
    for tenant in TENANTS:
        hooks = {"postStart": execute("echo post > /hooks/post"), "preStop": execute("sleep 2; echo pre > /hooks/pre")}
        volumes = [objects.host_path("hooks", there / tenant)]
        main = container(lifecycle=hooks, volumeMounts=[mount("hooks", "/hooks")])
        cluster.create(objects.pod("hooked", tenant, [main], volumes=volumes, terminationGracePeriodSeconds=120))
    for tenant in TENANTS:
        cluster.ready(tenant, "hooked")
        same("after the start", "post\n", (there / tenant / "post").read_text())
        same("a hook that has run", False, (there / tenant / "pre").exists())
        api.delete("Pod", "hooked", tenant)
    for tenant in TENANTS:
        cluster.until(f"the pod of {tenant} is gone", lambda tenant=tenant: api.find("Pod", "hooked", tenant) is None)
        same("before the end", "pre\n", (there / tenant / "pre").read_text())


def an_exit_code_restarts_all_containers_of_its_pod(cluster):
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    shared = [mount("shared", "/shared")]
    # The first run ends with the code of the rule, the second one goes on.
    main = container(
        "if [ -e /shared/ran ]; then " + objects.FOREVER + "; fi; touch /shared/ran; exit 42",
        volumeMounts=shared, restartPolicy="Never", restartPolicyRules=[rule],
    )  # fmt: skip
    initial = container("echo x >> /shared/inits", "init", volumeMounts=shared)
    for tenant in TENANTS:
        cluster.create(
            objects.pod("together", tenant, [main, container(name="other", volumeMounts=shared)], initContainers=[initial], volumes=[SHARED])
        )
    for tenant in TENANTS:
        restarted = lambda tenant=tenant: counts(tenant) == {"init": 1, "main": 1, "other": 1}  # noqa: E731
        try:
            cluster.until(f"all containers of {tenant} have restarted", restarted)
        except AssertionError as error:
            raise AssertionError(f"restarts: {json.dumps(counts(tenant))}; {error}") from error
        cluster.ready(tenant, "together")
        same("runs of init", "x\nx", cluster.sh(tenant, "together", "cat /shared/inits", "other"))


def counts(tenant):
    return {name: one["restartCount"] for name, one in containers(api.get("Pod", "together", tenant)).items()}
