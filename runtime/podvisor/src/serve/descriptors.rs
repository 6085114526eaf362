//! The daemon's limit of open descriptors. A pod needs about ten of the daemon's, and the usual limit of
//! 1,024 is too low for the kubelet's 110 pods.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit to the process's hard limit, and returns the old one. The old one is for the daemon's
/// child programs: some of them iterate over every possible descriptor.
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
