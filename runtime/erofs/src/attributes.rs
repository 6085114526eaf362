//! Attributes of a node. Owns plain values and their checks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Problem;
use crate::xattr;

/// Seconds and nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timestamp {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, below a billion.
    pub nanoseconds: u32,
}

/// Attributes common to all kinds of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission, set-id and sticky bits; other bits are ignored.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, the only time kept by EROFS.
    pub mtime: Timestamp,
    /// Extended attributes by full name (`user.x`).
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Default for Attributes {
    /// The attributes of a parent not named by any layer: owned by root, `0755`, at the epoch.
    fn default() -> Self {
        Attributes { mode: 0o755, uid: 0, gid: 0, mtime: Timestamp::default(), xattrs: BTreeMap::new() }
    }
}

impl Attributes {
    pub(crate) fn check(&self) -> Result<(), Problem> {
        if self.mtime.nanoseconds >= 1_000_000_000 {
            return Err(Problem::Nanoseconds(self.mtime.nanoseconds));
        }
        xattr::check(&self.xattrs)
    }

    /// Bytes of attribute names and values, for the tree's bound.
    pub(crate) fn bytes(&self) -> usize {
        self.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Below 4096.
    pub major: u32,
    /// Below 1048576.
    pub minor: u32,
}

impl Device {
    pub(crate) fn check(self) -> Result<(), Problem> {
        if self.major >= 1 << 12 || self.minor >= 1 << 20 {
            return Err(Problem::DeviceNumber(self.major, self.minor));
        }
        Ok(())
    }

    /// The 32-bit form of `new_encode_dev` (kernel `include/linux/kdev_t.h`).
    pub(crate) fn encode(self) -> u32 {
        (self.minor & 0xff) | (self.major << 8) | ((self.minor & !0xff) << 12)
    }
}
