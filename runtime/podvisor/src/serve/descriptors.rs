//! The daemon's limit of open descriptors. A pod takes some ten of the daemon's, and the usual limit of 1,024 ends a node
//! at fewer pods than the kubelet's 110.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit to what the process may have at most, and returns the one before, which is for the programs that
/// the daemon runs: some of them walk through every descriptor that they might have.
pub(super) fn raise() -> nix::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_becomes_the_most_that_is_allowed() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 512, hard).unwrap();
        assert_eq!(raise(), Ok(512));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE), Ok((hard, hard)));
    }
}
