//! Conversions between CRI's messages and our specs and views, both ways. All are pure. `runtime/spec`
//! decides the meaning of a value. A conversion only changes its type, and refuses a value outside the type's
//! range by the name of its field. CDI devices are the exception: their files' edits are no CRI values, and
//! `cdi/` decides which of them are possible for a container in a VM.

pub(crate) mod cdi;
mod container_in;
mod container_out;
mod event_out;
mod filter;
mod mount;
mod pod_in;
mod pod_out;
mod resources;
mod security;
mod stats_out;

pub(crate) use container_in::container_spec;
pub(crate) use container_out::{container_item, container_status};
pub(crate) use event_out::event_out;
pub(crate) use filter::{
    container_item_matches, container_matches, container_stats_match, image_item_matches, pod_item_matches,
    pod_matches, pod_stats_match,
};
pub(crate) use pod_in::pod_spec;
pub(crate) use pod_out::{pod_item, pod_status};
pub(crate) use resources::resources_in;
pub(crate) use stats_out::{container_stats, pod_stats, silent_container_stats};
