//! A pod's resources on the host: its VMM's process and cgroup, its connectors' cgroups, its scratch disk,
//! its shared directory, its logs.
//!
//! Blocking work on files and processes, without knowledge of pods' states. `start/` makes these resources
//! and removes them.

pub(crate) mod cgroup;
pub(crate) mod connector_cgroup;
pub(crate) mod disk_image;
pub(crate) mod file_data;
pub(crate) mod logs;
pub(crate) mod memory_events;
pub(crate) mod memory_file;
pub(crate) mod remove_cgroup;
pub(crate) mod scratch;
pub(crate) mod shared_dir;
pub(crate) mod vmm_process;
