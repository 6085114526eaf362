//! Features that this runtime claims. The kubelet refuses pods that ask for a feature which is not claimed, so
//! each flag is true only where it holds, and is switched on in the change that makes it hold.

use proto_cri::v1;

/// Features of a handler, alike for all handlers since each gives a pod the same guest kernel.
pub(super) fn of_handler() -> v1::RuntimeHandlerFeatures {
    v1::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: true }
}

/// Of the runtime as a whole.
pub(super) fn of_runtime() -> v1::RuntimeFeatures {
    v1::RuntimeFeatures {
        supplemental_groups_policy: true,
        // No pod shares the node's network.
        user_namespaces_host_network: false,
    }
}
