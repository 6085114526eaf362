//! Smaller cases than a case, for finding the smallest one with a difference. Pure.

use crate::case::{Case, Image, Limits, Pod, Security};

/// Cases with one thing less each, those with the most less first.
pub(crate) fn smaller(case: &Case) -> Vec<Case> {
    let mut found = Vec::new();
    let mut offer = |change: &dyn Fn(&mut Case)| {
        let mut changed = case.clone();
        change(&mut changed);
        if changed != *case {
            found.push(changed);
        }
    };
    offer(&|case| case.mounts.clear());
    offer(&|case| case.image = Image::default());
    offer(&|case| case.security = Security::default());
    offer(&|case| case.limits = Limits::default());
    offer(&|case| case.pod = Pod::default());
    offer(&|case| case.env.clear());
    offer(&|case| case.cwd.clear());
    offer(&|case| case.tty = false);
    for at in 0..case.mounts.len() {
        offer(&|case| drop(case.mounts.remove(at)));
        offer(&|case| case.mounts[at].tree.clear());
        offer(&|case| case.mounts[at].read_only = false);
    }
    for at in 0..case.image.tree.len() {
        offer(&|case| drop(case.image.tree.remove(at)));
    }
    for key in case.image.config.keys() {
        offer(&|case| drop(case.image.config.remove(key)));
    }
    for at in 0..case.env.len() {
        offer(&|case| drop(case.env.remove(at)));
    }
    offer(&|case| case.security.uid = None);
    offer(&|case| case.security.gid = None);
    offer(&|case| case.security.groups.clear());
    offer(&|case| case.security.add.clear());
    offer(&|case| case.security.drop.clear());
    offer(&|case| case.security.seccomp.clear());
    offer(&|case| case.security.read_only = false);
    offer(&|case| case.security.no_new_privs = false);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn each_is_smaller_so_that_shrinking_ends() {
        let size = |case: &Case| toml::to_string(case).unwrap().len();
        for seed in 0..100 {
            let case = generate::case(seed);
            assert!(smaller(&case).iter().all(|other| size(other) < size(&case)));
        }
    }

    #[test]
    fn nothing_is_smaller_than_the_plainest_case() {
        assert!(
            smaller(&Case { name: "plain".into(), sh: Some("true".into()), ..Case::default() }).is_empty()
        );
    }
}
