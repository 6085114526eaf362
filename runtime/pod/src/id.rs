//! The form of a pod's id. Ids are drawn in `clock.rs`.

/// Length of a pod's id.
const DIGITS: usize = 64;

/// Whether a name can be a pod's id.
pub(crate) fn is_id(name: &str) -> bool {
    name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}
