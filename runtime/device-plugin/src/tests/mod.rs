//! Tests of the plugin against kubelets reduced to their side of the device plugin API.

mod allocation;
mod health;
mod kubelet;
mod node;
mod old_kubelet;
mod pod_resources;
mod registration;
mod restarts;
