"""All checks in their order: the node's own programs, tenants, failures, and the state after a reboot.

tests/cluster/run has the names alone; the checks themselves are looked up in the node.
"""

import importlib

MODULES = ("node", "storage", "workloads", "pressure", "failures", "kubelet_log")
# Without these there is no cluster: they are always run, and nothing is after a failure.
NEEDED = ["a_node_is_ready_once_a_daemonset_configures_its_network"]
BOTH_BOOTS = ["the_kubelets_log_has_no_error_without_a_reason"]
FIRST_BOOT = [
    *NEEDED,
    "services_are_reached_from_vm_pods_through_kube_proxy",
    "a_mount_of_a_storage_plugin_is_seen_in_a_vm_pod",
    "deployments_start_in_order_and_roll_over",
    "a_failing_liveness_probe_restarts_its_container_alone",
    "jobs_succeed_and_fail",
    "a_statefulset_keeps_its_block_and_filesystem_volumes",
    "changed_config_maps_reach_running_pods",
    "containers_are_resized_up_and_down_in_place",
    "vm_pods_have_user_namespaces",
    "pods_of_the_node_have_user_namespaces",
    "image_volumes_are_read_by_vm_pods",
    "image_volumes_are_read_by_pods_of_the_node",
    "kubectl_debug_sees_its_target",
    "hooks_run_before_a_container_ends",
    "an_exit_code_restarts_all_containers_of_its_pod",
    "a_pod_that_overfills_its_empty_dir_is_evicted_alone",
    "pods_go_on_while_the_daemon_is_killed",
    "pods_go_on_while_containerd_is_killed",
    "a_pod_whose_vmm_is_killed_comes_back",
    "a_drained_node_is_empty_of_tenants_until_it_is_used_again",
    # Late: its other evictions would be another check's failure.
    "a_full_disk_evicts_who_fills_it_and_is_over_with_him",
    *BOTH_BOOTS,
]
SECOND_BOOT = ["pods_come_back_after_a_reboot"]
NAMES = [*FIRST_BOOT, *SECOND_BOOT]
# The first boot's preparation for the second.
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
