//! Paths of layer entries. Owns their syntax; never resolves them.

use crate::error::Problem;
use crate::limits::{MAX_NAME_BYTES, MAX_PATH_BYTES};

/// Splits a path relative to the root into components. `.` components and one trailing `/` are dropped, so that
/// `./etc/` is `["etc"]` and `./` is the root, `[]`.
pub(crate) fn components(path: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    if path.len() > MAX_PATH_BYTES {
        return Err(Problem::PathTooLong(path.len()));
    }
    if path.contains(&0) {
        return Err(Problem::NulByte);
    }
    if path.starts_with(b"/") {
        return Err(Problem::AbsolutePath);
    }
    let path = path.strip_suffix(b"/").unwrap_or(path);
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" => return Err(Problem::EmptyComponent),
            b"." => {}
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
        b"" | b"." => Err(Problem::EmptyComponent),
        b".." => Err(Problem::ParentComponent),
        name if name.len() > MAX_NAME_BYTES => Err(Problem::NameTooLong(name.len())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_dots_and_a_trailing_slash_are_dropped() {
        assert_eq!(components(b"./etc/passwd"), Ok(vec![&b"etc"[..], b"passwd"]));
        assert_eq!(components(b"etc/"), Ok(vec![&b"etc"[..]]));
        assert_eq!(components(b"./"), Ok(vec![]));
        assert_eq!(components(b"."), Ok(vec![]));
        assert_eq!(components(b""), Ok(vec![]));
    }

    #[test]
    fn hostile_paths_are_refused() {
        assert_eq!(components(b"../x"), Err(Problem::ParentComponent));
        assert_eq!(components(b"a/../x"), Err(Problem::ParentComponent));
        assert_eq!(components(b"/etc"), Err(Problem::AbsolutePath));
        assert_eq!(components(b"a//b"), Err(Problem::EmptyComponent));
        assert_eq!(components(b"a\0b"), Err(Problem::NulByte));
        assert_eq!(components(&[b'a'; 256]), Err(Problem::NameTooLong(256)));
        assert_eq!(components(&b"a/".repeat(2049)), Err(Problem::PathTooLong(4098)));
        assert!(components(&[b'a'; 255]).is_ok());
    }
}
