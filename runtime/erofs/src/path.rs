//! Paths of layer entries. Owns their syntax; never resolves them.

use crate::error::Problem;
use crate::limits::{MAX_NAME_BYTES, MAX_PATH_BYTES};

/// Splits a path from the root, with or without a leading slash, into components. Builders write paths in
/// many ways, and other runtimes clean them before using the tree. Empty and `.` components are dropped. `..`
/// removes the component before it and stops at the root. So `./etc//` is `["etc"]`, and `./` and `a/../..`
/// are the root, `[]`.
pub(crate) fn components(path: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    if path.len() > MAX_PATH_BYTES {
        return Err(Problem::PathTooLong(path.len()));
    }
    if path.contains(&0) {
        return Err(Problem::NulByte);
    }
    let mut parts = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            _ => {
                check_name(part)?;
                parts.push(part);
            }
        }
    }
    Ok(parts)
}

/// Checks a single name.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Problem> {
    match name {
        b"" | b"." | b".." => Err(Problem::NoName),
        name if name.len() > MAX_NAME_BYTES => Err(Problem::NameTooLong(name.len())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_before_anything_is_looked_up() {
        for (path, cleaned) in [
            (&b"./etc/passwd"[..], vec![&b"etc"[..], b"passwd"]),
            (b"etc/", vec![b"etc"]),
            (b"/etc", vec![b"etc"]),
            (b"//etc///passwd//", vec![b"etc", b"passwd"]),
            (b"a/./b/.", vec![b"a", b"b"]),
            (b"a/../x", vec![b"x"]),
            (b"a/b/../../c", vec![b"c"]),
            (b"a/...", vec![b"a", b"..."]),
            (b"./", vec![]),
            (b".", vec![]),
            (b"", vec![]),
            (b"a/..", vec![]),
        ] {
            assert_eq!(components(path), Ok(cleaned), "{}", path.escape_ascii());
        }
    }

    #[test]
    fn no_path_leads_out_of_the_root() {
        assert_eq!(components(b"../x"), Ok(vec![&b"x"[..]]));
        assert_eq!(components(b"../../etc/cron.d/x"), Ok(vec![&b"etc"[..], b"cron.d", b"x"]));
        assert_eq!(components(b"a/../../../b/../.."), Ok(vec![]));
    }

    #[test]
    fn paths_that_no_file_system_has_are_refused() {
        assert_eq!(components(b"a\0b"), Err(Problem::NulByte));
        assert_eq!(components(&[b'a'; 256]), Err(Problem::NameTooLong(256)));
        assert_eq!(components(&b"a/".repeat(2049)), Err(Problem::PathTooLong(4098)));
        assert!(components(&[b'a'; 255]).is_ok());
    }
}
