//! Plugins of the node (NRI) and pods, each in the other's words. What a plugin is, `runtime/nri` knows; what becomes of a pod,
//! `runtime/pod`. What plugins ask for goes the way of a request: it is put into a container's spec, which is checked as a kubelet's.
//!
//! | file | has |
//! |---|---|
//! | `plugins.rs` | the handle |
//! | `asking.rs` | the questions of pods, as NRI's events |
//! | `hearing.rs` | what plugins hear without being asked |
//! | `behind.rs` | what plugins ask of pods: what there is, and updates |
//! | `adjust.rs`, `device.rs` | an adjustment, put into a container's spec |
//! | `unsupported.rs` | what a container in a VM cannot have |
//! | `out.rs`, `resources.rs` | pods, containers and resources as NRI has them |

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
