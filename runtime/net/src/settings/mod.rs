//! Settings left by CNI plugins in a pod's namespace, other than interfaces, addresses, routes and
//! neighbours: sysctls, firewall rules, routing rules, queueing disciplines. The VM's frames bypass the
//! namespace's network stack (`attach.rs`), so such a setting has no effect there. Owns the decision how to
//! treat it.
//!
//! ```text
//!   namespace ──► survey ──► plugin ──► survey ──► plugin ──► survey ──► Left ──► policy ──► PodSettings
//!                    └─────────── watch.rs ───────────┴──────────────────┘   └──► the pod is refused
//! ```
//!
//! `sysctl` (with `values`) and `setting` define the possible findings, and `survey` collects them.
//! `route_details` finds parts of routes that the guest's routes do not have.
//! `sysctl_files` reads the sysctls; a few are under a kernel lock, and `rtnl` waits for it. `netfilter`
//! speaks nftables' netlink. `watch` attributes each setting to a plugin. `nft` and `nft_rule` turn tables
//! into messages for another kernel, and `policy` decides.

mod attribute;
mod left;
mod netfilter;
mod nft;
mod nft_rule;
mod policy;
mod route_details;
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
