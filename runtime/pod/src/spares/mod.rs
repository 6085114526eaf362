//! Spares: pooled resources for new pods. There are VMMs without a guest, jailed and ready for one; VMs
//! restored from a template, with all work done that is the same for every pod; and network namespaces
//! (`networks`), kept by the network.
//!
//! ```text
//!   a pod asks ─┬─ a VM of its kind waits ──> claimed: the pod has its id, its VM and its scratch disk
//!               ├─ a VMM waits ──> claimed: the pod has its id, and starts in it from the template, or boots
//!               └─ none ──> the pod's VMM is started first                    (a claim waits for nothing)
//!   the task, while no pod starts:  too few ──> a spare is made        too many, old, dead, or
//!                                                                      memory is short ──> one is ended
//! ```
//!
//! `kind` defines the pods for a spare, `demand` the wanted number of each kind, `kept` is the pool, and
//! `make` makes one and ends one. A pod can start without all this. A killed daemon leaves VMs without a pod
//! ([`crate::unclaimed`]). The next one removes them.

mod demand;
pub(crate) mod kept;
mod kind;
mod make;
pub(crate) mod networks;
mod task;

pub(crate) use self::kept::{AskedKind, Spare, SpareGuest};
pub(crate) use self::kind::SpareKind;
pub(crate) use self::task::{close, look};
