//! The node's own record of its installation, and the lock for one installation or removal at a time. The
//! record is written before each change, so a removal knows of everything, however the installation ended.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::root::{HostRoot, RootError};

/// Directory of the record. The daemon's state is elsewhere, in a place set by the operator.
const DIRECTORY: &str = "/var/lib/podvisor-node";
const RECORD: &str = "/var/lib/podvisor-node/record.json";
const LOCK: &str = "/var/lib/podvisor-node/lock";

/// Largest record. It has at most a hundred paths.
const BYTES_MAX: u64 = 1 << 20;

/// Everything needed for a removal. Fields of a newer installer are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct InstallRecord {
    /// Directory above the programs, such as `/opt/podvisor`.
    pub(crate) prefix: PathBuf,
    /// Files put on the node, or about to be. The configuration is not among them.
    pub(crate) files: BTreeSet<PathBuf>,
    /// Whether files, units or the configuration have changed since the daemon was started.
    pub(crate) restart_due: bool,
    /// The daemon that was started last by an installation.
    pub(crate) started: Option<StartedDaemon>,
    /// The kubelet switched by this installation.
    pub(crate) kubelet: Option<SwitchRecord>,
    /// The last switch, if the kubelet did not keep running with it.
    pub(crate) fallen: Option<FallenSwitch>,
}

/// A start of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StartedDaemon {
    /// systemd's id of the start. A later start by a boot or after a crash has another one.
    pub(crate) invocation: String,
    /// The schema of its records.
    pub(crate) schema: u64,
}

/// A switch that was undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FallenSwitch {
    /// The kubelet's unit.
    pub(crate) unit: String,
    /// The text of its file.
    pub(crate) text: String,
    /// What was seen of the kubelet.
    pub(crate) said: String,
}

/// A switched kubelet, or one about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SwitchRecord {
    /// The kubelet's unit.
    pub(crate) unit: String,
    /// The file for switching it to Podvisor.
    pub(crate) drop_in: PathBuf,
    /// Whether the kubelet has not been seen running since.
    pub(crate) restart_due: bool,
    /// The file's text in force before, while a switch is renewed.
    #[serde(default)]
    pub(crate) earlier: Option<String>,
}

/// The record, locked against others.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) record: Option<InstallRecord>,
    _lock: File,
}

/// An unusable record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// An installer or a remover is at work.
    #[error("another installation or removal is under way on this node")]
    Held,
    /// A disk failed.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The lock failed.
    #[error("cannot lock {LOCK} on the node")]
    Lock(#[source] std::io::Error),
    /// Someone has changed the record.
    #[error("{RECORD} on the node is no record of an installation")]
    Damaged(#[source] serde_json::Error),
}

impl Held {
    /// Takes the lock, and reads the record if there is one.
    pub(crate) fn take(root: &HostRoot) -> Result<Held, RecordError> {
        let lock = root.lock_file(Path::new(LOCK))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(RecordError::Held),
            Err(errno) => return Err(RecordError::Lock(errno.into())),
        }
        Ok(Held { record: read(root)?, _lock: lock })
    }

    /// Reads the record without the lock, and makes nothing.
    pub(crate) fn peek(root: &HostRoot) -> Result<Option<InstallRecord>, RecordError> {
        read(root)
    }

    /// Removes the record with its directory. The lock ends with its holder.
    pub(crate) fn remove(self, root: &HostRoot) -> Result<(), RootError> {
        root.remove(Path::new(RECORD))?;
        root.remove(Path::new(LOCK))?;
        root.remove_if_empty(Path::new(DIRECTORY))
    }
}

fn read(root: &HostRoot) -> Result<Option<InstallRecord>, RecordError> {
    let text = root.read(Path::new(RECORD), BYTES_MAX)?;
    text.map(|text| serde_json::from_str(&text)).transpose().map_err(RecordError::Damaged)
}

impl InstallRecord {
    /// Puts the record on the node's disk.
    pub(crate) fn save(&self, root: &HostRoot) -> Result<(), RootError> {
        let text = serde_json::to_string_pretty(self).expect("a record is plain JSON");
        root.write(Path::new(RECORD), &(text + "\n"))
    }
}
