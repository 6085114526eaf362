//! Settings that CNI plugins leave in a pod's namespace beside interfaces, addresses, routes and neighbours: sysctls, packet filters,
//! rules of routing, disciplines of queueing. The guest's frames pass the namespace by (`attach.rs`), so such a setting holds for nobody
//! there. Owns what becomes of it.
//!
//! ```text
//!   namespace ──► survey ──► plugin ──► survey ──► plugin ──► survey ──► Left ──► policy ──► PodSettings, for the guest
//!                    └─────────── watch.rs ───────────┴──────────────────┘   └──► the pod is refused
//! ```
//!
//! `sysctl`, with its `values`, and `setting` are what can be found, `survey` finds it (`sysctl_files` reads sysctls, some under the kernel's
//! lock for which `rtnl` waits, `netfilter` speaks nftables' netlink), `watch` knows the plugin.
//! `nft` and `nft_rule` turn tables into messages for another kernel, and `policy` decides.

mod attribute;
mod left;
mod netfilter;
mod nft;
mod nft_rule;
mod policy;
mod rtnl;
mod setting;
mod survey;
mod sysctl;
mod sysctl_files;
mod values;
mod watch;

pub use left::PodSysctl;
pub use policy::{PodNftTable, PodSettings, SettingsPolicy};
pub(crate) use survey::Survey;
pub(crate) use sysctl_files::SysctlFiles;
pub(crate) use watch::Watch;
