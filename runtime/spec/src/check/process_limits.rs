//! Refuses impossible limits of processes.

use crate::plan::limit_type;
use crate::{ProcessLimit, SpecError};

/// Refuses invalid limits. The guest's kernel refuses those it does not allow.
pub(super) fn check(limits: &[ProcessLimit]) -> Result<(), SpecError> {
    for (number, limit) in limits.iter().enumerate() {
        let ProcessLimit { name, soft, hard } = limit;
        if limit_type(name).is_none() {
            let shown: String = name.chars().take(64).collect();
            return Err(SpecError::invalid("rlimits", format!("{shown:?} is no limit of a process")));
        }
        if soft > hard {
            let reason = format!("{name} has a soft limit of {soft}, above the hard one of {hard}");
            return Err(SpecError::invalid("rlimits", reason));
        }
        if limits[..number].iter().any(|known| known.name == *name) {
            return Err(SpecError::invalid("rlimits", format!("{name} is there twice")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_has_a_name_of_the_kernels_and_is_there_once() {
        let limit = |name: &str, soft, hard| ProcessLimit { name: name.into(), soft, hard };
        check(&[limit("RLIMIT_NOFILE", 1, 1), limit("RLIMIT_CORE", 0, u64::MAX)]).unwrap();
        for (bad, words) in [
            (vec![limit("NOFILE", 1, 1)], "\"NOFILE\" is no limit"),
            (vec![limit("RLIMIT_NOFILE", 2, 1)], "above the hard one"),
            (vec![limit("RLIMIT_CPU", 1, 1), limit("RLIMIT_CPU", 2, 2)], "there twice"),
        ] {
            let error = check(&bad).unwrap_err().to_string();
            assert!(error.starts_with("rlimits: ") && error.contains(words), "{error}");
        }
    }
}
