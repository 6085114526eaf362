"""All checks in their order: what the node itself needs, and what its kubelet has logged.

tests/cluster/run has the names alone; the checks themselves are looked up in the node.
"""

import importlib

MODULES = ("node", "kubelet_log")
# Without these there is no cluster: they are always run, and nothing is after a failure.
NEEDED = ["a_node_is_ready_once_a_daemonset_configures_its_network"]
BOTH_BOOTS = ["the_kubelets_log_has_no_error_without_a_reason"]
FIRST_BOOT = [
    *NEEDED,
    "services_are_reached_from_vm_pods_through_kube_proxy",
    *BOTH_BOOTS,
]
SECOND_BOOT = []
NAMES = [*FIRST_BOOT, *SECOND_BOOT]
# What the first boot does for the second.
PREPARED = "pods_are_remembered_before_a_reboot"


def checks(boot, wanted):
    """The checks of a boot, in order."""
    known = {}
    for module in MODULES:
        known.update(vars(importlib.import_module(module)))
    if boot > 1:
        names = [*SECOND_BOOT, *(name for name in BOTH_BOOTS if name in wanted)]
    else:
        names = [name for name in FIRST_BOOT if name in wanted or name in NEEDED]
        if any(name in wanted for name in SECOND_BOOT):
            names.append(PREPARED)
    return [known[name] for name in names]
