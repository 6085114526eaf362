//! Breaches that a folder still has and is to lose: a number for each, which only ever falls, or [`ANY`].
//!
//! The lists are to be exact. More than is allowed is a breach; less means that the list is out of date.

use std::collections::BTreeMap;

use crate::Source;

/// Folders or crates, and how many breaches each may still have.
pub type Allowance = [(&'static str, usize)];

/// Any number, as long as there is a breach at all.
pub const ANY: usize = usize::MAX;

/// The breaches, by folder or crate.
pub type Breaches = BTreeMap<String, Vec<String>>;

/// The breaches of all sources, by the folder of a crate.
pub fn by_folder(sources: &[Source], check: impl Fn(&Source) -> Vec<String>) -> Breaches {
    let mut found = Breaches::new();
    for source in sources {
        let lines = check(source);
        if !lines.is_empty() {
            let folder: Vec<_> = source.path.split('/').take(2).collect();
            found.entry(folder.join("/")).or_default().extend(lines);
        }
    }
    found
}

/// The lines of those that have more than they are allowed.
#[must_use]
pub fn beyond(found: &Breaches, allowed: &Allowance) -> Vec<String> {
    let allowance =
        |name: &str| allowed.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count);
    let more = found.iter().filter(|(name, lines)| lines.len() > allowance(name));
    more.flat_map(|(_, lines)| lines.iter().cloned()).collect()
}

/// One line for each that has fewer than the list allows.
#[must_use]
pub fn stale(found: &Breaches, allowed: &Allowance, list: &str) -> Vec<String> {
    let left = |name: &str| found.get(name).map_or(0, Vec::len);
    let fewer =
        allowed.iter().filter(|(name, count)| left(name) == 0 || (*count != ANY && left(name) < *count));
    fewer
        .map(|(name, _)| format!("{name}: {} left, and {list} allows more; correct the list", left(name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(count: usize) -> Breaches {
        BTreeMap::from([("runtime/net".to_owned(), (0..count).map(|at| format!("breach {at}")).collect())])
    }

    #[test]
    fn more_than_allowed_is_a_breach() {
        assert_eq!(beyond(&found(2), &[("runtime/net", 1)]), ["breach 0", "breach 1"]);
        assert_eq!(beyond(&found(1), &[("runtime/cri", 1)]), ["breach 0"]);
        assert_eq!(beyond(&found(1), &[("runtime/net", 1)]), Vec::<String>::new());
        assert_eq!(beyond(&found(9), &[("runtime/net", ANY)]), Vec::<String>::new());
    }

    #[test]
    fn less_than_allowed_makes_a_list_stale() {
        let line =
            |left: usize| [format!("runtime/net: {left} left, and LIST allows more; correct the list")];
        assert_eq!(stale(&found(1), &[("runtime/net", 2)], "LIST"), line(1));
        assert_eq!(stale(&found(0), &[("runtime/net", ANY)], "LIST"), line(0));
        assert_eq!(stale(&BTreeMap::new(), &[("runtime/net", 2)], "LIST"), line(0));
        assert_eq!(stale(&found(2), &[("runtime/net", 2)], "LIST"), Vec::<String>::new());
        assert_eq!(stale(&found(2), &[("runtime/net", ANY)], "LIST"), Vec::<String>::new());
    }
}
