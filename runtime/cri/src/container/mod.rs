//! RPCs about containers, one file each.

pub(crate) mod attach;
pub(crate) mod checkpoint;
pub(crate) mod create;
pub(crate) mod exec;
pub(crate) mod exec_sync;
pub(crate) mod list;
pub(crate) mod remove;
pub(crate) mod reopen_log;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod stream;
pub(crate) mod update_resources;
