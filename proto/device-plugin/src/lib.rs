//! The kubelet's APIs for device plugins on the wire: messages, clients and servers, generated from the files
//! in `proto/`. No logic lives here; `runtime/device-plugin` is the plugin.
//!
//! | module | package on the wire | version in a registration | spoken by kubelets |
//! |---|---|---|---|
//! | [`v1beta1`] | `v1beta1` | `v1beta1` | since 1.10 |
//! | [`v1alpha2`] | `deviceplugin` | `v1alpha2` | 1.9 |
//! | [`v0_1`] | `deviceplugin` | `0.1` | 1.8 |
//! | [`pod_resources`] | `v1` | none | since 1.20 (v1 of the API) |

#![forbid(unsafe_code)]

/// The device plugin API of kubelets since 1.10 (k8s.io/kubelet `deviceplugin/v1beta1`, as of 1.36).
pub mod v1beta1 {
    #![allow(
        missing_docs,
        missing_debug_implementations,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        rustdoc::all
    )]
    include!(concat!(env!("OUT_DIR"), "/v1beta1/v1beta1.rs"));
}

/// The second alpha version of the API, of Kubernetes 1.9 (`deviceplugin/v1alpha`).
pub mod v1alpha2 {
    #![allow(
        missing_docs,
        missing_debug_implementations,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        rustdoc::all
    )]
    include!(concat!(env!("OUT_DIR"), "/v1alpha2/deviceplugin.rs"));
}

/// The first alpha version of the API, of Kubernetes 1.8 (`deviceplugin/v1alpha1`). Tests read answers like
/// that kubelet.
pub mod v0_1 {
    #![allow(
        missing_docs,
        missing_debug_implementations,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        rustdoc::all
    )]
    include!(concat!(env!("OUT_DIR"), "/v0_1/deviceplugin.rs"));
}

/// The device lists of the kubelet's pod-resources API (k8s.io/kubelet `podresources/v1`).
pub mod pod_resources {
    #![allow(
        missing_docs,
        missing_debug_implementations,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        rustdoc::all
    )]
    include!(concat!(env!("OUT_DIR"), "/pod_resources/v1.rs"));
}
