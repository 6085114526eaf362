//! The counts of a run, and its lines.

use std::collections::BTreeMap;

use crate::accepted::{Accepted, Kind};
use crate::outcome::{Outcome, difference};

/// The counts of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    agree: usize,
    accepted: BTreeMap<Kind, usize>,
    differ: Vec<String>,
    gone: Vec<String>,
}

impl Report {
    /// Adds both outcomes of a case or a script.
    pub(crate) fn add(
        &mut self,
        area: &str,
        name: &str,
        (ours, theirs): &(Outcome, Outcome),
        accepted: &[Accepted],
    ) {
        let lines = difference(theirs, ours);
        let known = accepted.iter().find(|known| known.case == name);
        let name = format!("{area}: {name}");
        let state = match (lines.is_empty(), known) {
            (true, None) => {
                self.agree += 1;
                "agree"
            }
            (true, Some(_)) => {
                self.gone.push(name.clone());
                "agree, and accepted.toml says that they differ"
            }
            (false, Some(known)) => {
                *self.accepted.entry(known.kind).or_default() += 1;
                "differ, as accepted"
            }
            (false, None) => {
                self.differ.push(name.clone());
                "differ"
            }
        };
        println!("{name}: {state}");
        if known.is_none() {
            lines.iter().for_each(|line| println!("    {line}"));
            if !lines.is_empty() {
                theirs.errors.iter().for_each(|error| println!("    runc: {error}"));
                ours.errors.iter().for_each(|error| println!("    podvisor: {error}"));
            }
        }
    }

    /// Prints the counts, and returns whether all is as it should be.
    pub(crate) fn close(&self) -> bool {
        let accepted: usize = self.accepted.values().sum();
        println!(
            "parity: {} cases, {} agree, {accepted} differ as accepted {:?}, {} differ, {} agree again",
            self.agree + accepted + self.differ.len() + self.gone.len(),
            self.agree,
            self.accepted,
            self.differ.len(),
            self.gone.len()
        );
        self.differ.iter().for_each(|name| println!("parity: differs: {name}"));
        self.gone
            .iter()
            .for_each(|name| println!("parity: agrees again, remove it from accepted.toml: {name}"));
        // The counting form of all tests.
        let failed = self.differ.len() + self.gone.len();
        let word = if failed == 0 { "ok" } else { "FAILED" };
        println!("test result: {word}. {} passed; {failed} failed; 0 ignored", self.agree + accepted);
        failed == 0
    }
}
