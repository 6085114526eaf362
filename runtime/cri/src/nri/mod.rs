//! Plugins of the node (NRI) and pods, each translated for the other. `runtime/nri` knows plugins, and
//! `runtime/pod` knows pods. A plugin's adjustment is handled like a request: it is applied to a container's
//! spec, and that is checked like a kubelet's.
//!
//! | file | has |
//! |---|---|
//! | `plugins.rs` | the handle |
//! | `asking.rs` | pods' questions, as NRI's events |
//! | `hearing.rs` | notifications to plugins |
//! | `behind.rs` | plugins' requests to pods: lists and updates |
//! | `adjust.rs`, `device.rs` | an adjustment, applied to a container's spec |
//! | `unsupported.rs` | adjustments impossible for a container in a VM |
//! | `out.rs`, `resources.rs` | pods, containers and resources in NRI's form |

mod adjust;
mod asking;
mod behind;
mod device;
mod hearing;
mod out;
mod plugins;
mod resources;
mod unsupported;

pub use self::plugins::NriPlugins;
pub use self::unsupported::UnsupportedAdjustments;
