//! RPCs about containers, one file each.

pub(crate) mod create;
pub(crate) mod exec_sync;
pub(crate) mod list;
pub(crate) mod remove;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod stop;
