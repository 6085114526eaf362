//! The host's boot. A process id and a start time identify a process within one boot only. After the next
//! boot they may belong to another process.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// The kernel's file with the id of its boot (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The id of a boot: random, 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct BootId(u128);

impl BootId {
    /// The id of this boot; `None` if the kernel has none.
    pub(crate) fn current() -> Option<BootId> {
        static CURRENT: OnceLock<Option<BootId>> = OnceLock::new();
        *CURRENT.get_or_init(|| std::fs::read_to_string(BOOT_ID).ok()?.trim().to_owned().try_into().ok())
    }
}

impl TryFrom<String> for BootId {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<BootId, Self::Error> {
        u128::from_str_radix(&text.replace('-', ""), 16).map(BootId)
    }
}

impl From<BootId> for String {
    fn from(id: BootId) -> String {
        format!("{:032x}", id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_the_kernel_writes_it_and_as_it_is_stored() {
        let id = BootId::try_from("0fd7b6a3-2f2c-4c6b-9a51-3ea1e2a7c0de".to_owned()).unwrap();
        let stored = String::from(id);
        assert_eq!(stored, "0fd7b6a32f2c4c6b9a513ea1e2a7c0de");
        assert_eq!(BootId::try_from(stored).unwrap(), id);
        assert!(BootId::try_from("none".to_owned()).is_err());
        assert_eq!(BootId::current(), BootId::current());
    }
}
