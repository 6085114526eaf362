//! A device plugin of the kubelet. Its devices are places for VMs: a node lists as many as it can hold, and a
//! scheduler puts no more requesting pods there. The kubelet counts the devices in use. The plugin publishes
//! their number and their health.
//!
//! ```text
//!  plugin.rs       registers, and notices when a registration ends
//!    ├─ claim.rs      one plugin for each directory
//!    ├─ socket.rs     the plugin's socket, and the server on it
//!    │    └─ service/    the two packages of the API, over one answer for both
//!    ├─ register.rs   a call of the kubelet's, in each version it may speak
//!    └─ notify.rs     changes of the directory
//!  health.rs       checks KVM and memory, and publishes the usable devices
//!    ├─ probe.rs      one check of KVM and memory
//!    └─ holders.rs    devices held by pods, as listed by the kubelet
//! ```
//!
//! Nothing here starts, stops or inspects a VM. The daemon need not run.

#![forbid(unsafe_code)]

mod backoff;
mod channel;
mod claim;
mod config;
mod count;
mod devices;
mod health;
mod holders;
mod identity;
mod memory;
mod notify;
mod plugin;
mod preferred;
mod probe;
mod register;
mod resource_name;
mod service;
mod socket;
#[cfg(test)]
mod tests;
mod tuning;

pub use claim::ClaimError;
pub use config::Config;
pub use count::{VMS_MAX, vms_in};
pub use plugin::{PluginError, run};
pub use resource_name::{ResourceName, ResourceNameError};
