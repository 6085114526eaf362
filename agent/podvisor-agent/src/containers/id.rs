//! Ids of containers and execs, and the paths made of them. The host chooses the ids. Pure.

use proto_agent::guest_path::CGROUP_PARENT;

use crate::containers::error::ContainerError;

/// Longest container or exec id, in bytes. CRI's ids have 64.
const ID_BYTES_MAX: usize = 128;

/// Refuses an id unless it can be a file's and a cgroup's name. An id must not start with a dot.
pub(crate) fn check_id(id: &str) -> Result<(), ContainerError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'+');
    if id.is_empty() || id.len() > ID_BYTES_MAX || id.starts_with('.') || !id.bytes().all(plain) {
        return Err(ContainerError::InvalidId(id.chars().take(ID_BYTES_MAX).collect()));
    }
    Ok(())
}

/// Path of a container's cgroup below the mount.
pub(crate) fn cgroup_path(id: &str) -> String {
    format!("{CGROUP_PARENT}/{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_no_file_name_is_refused() {
        for id in ["", ".", "..", ".hidden", "a/b", "a b", "a\0", &"x".repeat(ID_BYTES_MAX + 1)] {
            assert!(matches!(check_id(id), Err(ContainerError::InvalidId(_))), "{id:?}");
        }
        check_id("0a1b-C_d.e").unwrap();
    }
}
