//! A device plugin of the kubelet whose devices are places for VMs: a node lists as many as it can hold, and a scheduler
//! puts no more pods there that ask for one. The kubelet counts what is in use; the plugin says how many there are, and
//! which of them can be used.
//!
//! ```text
//!  plugin.rs       registers, and notices whatever ends a registration
//!    ├─ claim.rs      one plugin for each directory
//!    ├─ socket.rs     the plugin's socket, and the server on it
//!    │    └─ service/    the two packages of the API, over one answer for both
//!    ├─ register.rs   a call of the kubelet's, in each version it may speak
//!    └─ notify.rs     changes of the directory
//!  health.rs       looks at KVM and memory, and publishes which devices can be used
//!    ├─ probe.rs      what is looked at
//!    └─ holders.rs    devices that pods hold, as the kubelet lists them
//! ```
//!
//! Nothing here starts, stops or sees a VM: the daemon need not run.

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
