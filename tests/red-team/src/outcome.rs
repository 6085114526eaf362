//! The outcomes of all attempts, and the verdict.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::accepted;
use crate::hand::Refusal;
use crate::victim::Role;
use crate::walls::{Standing, Wall};

/// The outcome of one attempt with some walls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Succeeded,
    Refused(String),
}

impl Outcome {
    /// Returns `Err` for a fault of this program.
    pub(crate) fn of(tried: Result<(), Refusal>) -> anyhow::Result<Outcome> {
        Ok(match tried {
            Ok(()) => Outcome::Succeeded,
            Err(Refusal::Error(error)) => Outcome::Refused(format!("{error:?}")),
            Err(Refusal::Killed(signal)) => Outcome::Refused(format!("{signal}")),
            Err(Refusal::Replaced) => anyhow::bail!("the thread ended"),
            Err(Refusal::NoEffect) => Outcome::Refused("no effect".into()),
            Err(Refusal::Fault(fault)) => return Err(fault),
        })
    }
}

/// All outcomes of one attempt by one role.
#[derive(Debug, Default)]
pub(crate) struct Row {
    without: Option<Outcome>,
    only: BTreeMap<Wall, Outcome>,
    all: Option<Outcome>,
}

impl Row {
    pub(crate) fn set(&mut self, standing: Standing, outcome: Outcome) {
        match standing {
            Standing::None => self.without = Some(outcome),
            Standing::Only(wall) => drop(self.only.insert(wall, outcome)),
            Standing::All => self.all = Some(outcome),
        }
    }

    /// The walls that refuse the attempt alone.
    fn walls(&self) -> Vec<Wall> {
        let refused = self.only.iter().filter(|(_, outcome)| **outcome != Outcome::Succeeded);
        refused.map(|(wall, _)| *wall).collect()
    }

    /// The breach of the rule, if there is one: an attempt succeeds without walls, fails with all, and fails
    /// with each of two alone.
    fn breach(&self, role: Role, name: &str) -> Option<String> {
        match (&self.without, &self.all) {
            (Some(Outcome::Succeeded), Some(Outcome::Refused(_))) => {}
            (Some(Outcome::Refused(why)), _) => return Some(format!("fails without walls: {why}")),
            (_, Some(Outcome::Succeeded)) => return Some("succeeds with all walls".into()),
            _ => return None,
        }
        let walls = self.walls().len();
        match (walls, accepted::reason(role, name)) {
            (0, _) => Some("no wall refuses it alone".into()),
            (1, None) => Some("one wall alone refuses it".into()),
            (2.., Some(_)) => Some("two walls refuse it, and accepted.rs says one".into()),
            _ => None,
        }
    }
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(BTreeMap<(Role, &'static str), Row>);

impl Outcomes {
    pub(crate) fn set(&mut self, role: Role, name: &'static str, standing: Standing, outcome: Outcome) {
        self.0.entry((role, name)).or_default().set(standing, outcome);
    }

    /// Returns the table as text, and the number of breaches.
    pub(crate) fn report(&self) -> (String, usize) {
        let (mut text, mut breaches) = (String::new(), 0);
        let mut by_walls = BTreeMap::<usize, usize>::new();
        for ((role, name), row) in &self.0 {
            let walls = row.walls();
            *by_walls.entry(walls.len()).or_default() += 1;
            let walls: Vec<_> = walls.into_iter().map(Wall::name).collect();
            let with_all = match &row.all {
                Some(Outcome::Refused(why)) => why.as_str(),
                Some(Outcome::Succeeded) => "SUCCEEDS",
                None => "-",
            };
            let _ = write!(text, "{:6} {name:52} {with_all:10} {}", role.name(), walls.join(" "));
            if let Some(reason) = accepted::reason(*role, name) {
                let _ = write!(text, " (accepted: {reason})");
            }
            if let Some(breach) = row.breach(*role, name) {
                breaches += 1;
                let _ = write!(text, " BREACH: {breach}");
            }
            text.push('\n');
        }
        let succeed = self.0.values().filter(|row| row.all == Some(Outcome::Succeeded)).count();
        let free = self.0.values().filter(|row| row.without == Some(Outcome::Succeeded)).count();
        let counts: Vec<_> = by_walls.iter().map(|(walls, rows)| format!("{rows} by {walls}")).collect();
        let _ = writeln!(
            text,
            "red-team: {} attempts; {free} succeed without walls, {succeed} with all; refused by walls alone: {}; {breaches} breaches",
            self.0.len(),
            counts.join(", "),
        );
        (text, breaches)
    }
}
