//! RPCs about pod sandboxes, one file each.

pub(crate) mod list;
pub(crate) mod remove;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod stop;
