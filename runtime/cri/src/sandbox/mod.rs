//! RPCs about pod sandboxes, one file each.

pub(crate) mod list;
mod other_runtimes;
pub(crate) mod port_forward;
pub(crate) mod remove;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod stream;
pub(crate) mod update_resources;
