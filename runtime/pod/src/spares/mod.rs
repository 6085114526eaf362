//! Spares: VMMs without a guest, jailed and ready for one; VMs that went on from a template, and wait for their pods with all
//! done that is the same for every pod; and network namespaces (`networks`), which the network keeps.
//!
//! ```text
//!   a pod asks ─┬─ a VM of its kind waits ──> claimed: the pod has its id, its VM and its scratch disk
//!               ├─ a VMM waits ──> claimed: the pod has its id, and starts in it from the template, or boots
//!               └─ none ──> the pod's VMM is started first                    (a claim waits for nothing)
//!   the task, while no pod starts:  too few ──> a spare is made        too many, old, dead, or
//!                                                                      memory is short ──> one is ended
//! ```
//!
//! `kind` says which pods a spare is for, `demand` how many of each are wanted, `kept` has those that there are, `make` makes one and ends one. Nothing here is needed for a pod to start. A daemon that is killed leaves VMs without a pod behind
//! ([`crate::unclaimed`]), which the next one takes away.

mod demand;
pub(crate) mod kept;
mod kind;
mod make;
pub(crate) mod networks;
mod task;

pub(crate) use self::kept::{AskedKind, Spare, SpareGuest};
pub(crate) use self::kind::SpareKind;
pub(crate) use self::task::{close, look};
