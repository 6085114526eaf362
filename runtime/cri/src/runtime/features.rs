//! Features claimed by this runtime. The kubelet refuses pods requesting an unclaimed feature. So each flag
//! is true only if the feature works, and the change completing the feature also sets its flag.

use proto_cri::v1;

/// Features of a handler. They are the same for all handlers, because each gives a pod the same guest kernel.
pub(super) fn of_handler() -> v1::RuntimeHandlerFeatures {
    v1::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: true }
}

/// Of the runtime as a whole.
pub(super) fn of_runtime() -> v1::RuntimeFeatures {
    v1::RuntimeFeatures {
        supplemental_groups_policy: true,
        // No pod shares the node's network.
        user_namespaces_host_network: false,
        mount_options: true,
    }
}
