//! The environment of a process, from its specification's list.

use std::collections::HashSet;
use std::path::Path;

use crate::image_file;
use crate::users;

/// Returns the variables for executing a program, in the listed order. If a name occurs more than once, the
/// last entry counts. HOME is set if it is missing or empty. An entry without a name or without `=` stays
/// unchanged.
pub(super) fn prepare(listed: &[String], uid: u32) -> Vec<String> {
    let mut names = HashSet::new();
    let mut variables: Vec<String> =
        listed.iter().rev().filter(|entry| names.insert(name(entry))).cloned().collect();
    variables.reverse();
    variables.retain(|entry| entry != "HOME=");
    if !variables.iter().any(|entry| entry.starts_with("HOME=")) {
        variables.push(format!("HOME={}", home(uid)));
    }
    variables
}

fn name(entry: &str) -> &str {
    entry.split_once('=').map_or(entry, |(name, _)| name)
}

/// The user's home in the container's own `/etc/passwd`, including mounts. An unreadable file counts as
/// missing.
fn home(uid: u32) -> String {
    let passwd = image_file::read(Path::new("/"), Path::new("etc/passwd")).ok().flatten().unwrap_or_default();
    users::home(uid, &passwd).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(listed: &[&str]) -> Vec<String> {
        prepare(&listed.iter().map(ToString::to_string).collect::<Vec<_>>(), 0)
    }

    #[test]
    fn the_last_one_of_a_name_counts_and_the_order_stays() {
        let listed = ["A=1", "HOME=/x", "B=2", "A=3", "C=4", "B="];
        assert_eq!(prepared(&listed), ["HOME=/x", "A=3", "C=4", "B="]);
    }

    #[test]
    fn a_home_that_is_asked_for_stays_and_an_empty_one_is_replaced() {
        assert_eq!(prepared(&["HOME=/asked", "A=1"]), ["HOME=/asked", "A=1"]);
        let replaced = prepared(&["HOME=", "A=1"]);
        assert_eq!(replaced[0], "A=1");
        assert!(replaced[1].starts_with("HOME=/") && replaced.len() == 2, "{replaced:?}");
    }

    #[test]
    fn entries_without_a_name_or_a_value_are_passed_on() {
        assert_eq!(prepared(&["=x", "NAKED", "HOME=/"]), ["=x", "NAKED", "HOME=/"]);
    }
}
