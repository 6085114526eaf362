//! One step: a call, a passing of a point in it, and the fault there. Owns the list of steps, and the choice
//! of a share of them.

use std::collections::BTreeMap;
use std::fmt;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tests_e2e::fail_points::Passing;

use super::call::Call;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The daemon is killed, and another is started.
    Abort,
    /// The daemon's step fails.
    Error,
    /// The VMM of the call's pod is killed.
    VmmKilled,
    /// The VMM of the call's pod is stopped, and stays so.
    VmmFrozen,
}

impl Fault {
    pub(crate) const ALL: [Fault; 4] = [Fault::Abort, Fault::Error, Fault::VmmKilled, Fault::VmmFrozen];
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step {
    pub(crate) call: Call,
    pub(crate) point: String,
    pub(crate) nth: u64,
    pub(crate) fault: Fault,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {} {:?}", self.call, self.point, self.nth, self.fault)
    }
}

/// Points passed by the container beside at any time.
const OF_OUTPUT: [&str; 3] = ["log.write", "ack.write", "agent.acknowledge"];

/// Points with a documented loss of output lines at a failure, as on a full disk; tested elsewhere.
const LOSE_LINES: [&str; 2] = ["log.write", "log.open"];

/// If a point is passed often in one call, only the first passings and the last are steps: a blob has many
/// similar pieces.
const ALIKE_MAX: u64 = 3;

/// The steps of a call with these passings.
pub(crate) fn steps(call: Call, passed: &[Passing]) -> Vec<Step> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for passing in passed {
        let count = counts.entry(&passing.point).or_default();
        *count = passing.nth.max(*count);
    }
    let mut found = Vec::new();
    for (point, count) in counts {
        let most = if OF_OUTPUT.contains(&point) { 1 } else { count };
        let nths = (1..=most).filter(|nth| most <= 2 * ALIKE_MAX || *nth <= ALIKE_MAX || *nth == most);
        for nth in nths {
            for fault in Fault::ALL {
                let step = Step { call, point: point.to_owned(), nth, fault };
                if step.makes_sense() {
                    found.push(step);
                }
            }
        }
    }
    found
}

impl Step {
    fn makes_sense(&self) -> bool {
        match self.fault {
            Fault::Abort => true,
            Fault::Error => !LOSE_LINES.contains(&self.point.as_str()),
            Fault::VmmKilled | Fault::VmmFrozen => {
                self.call.has_a_vm() && !OF_OUTPUT.contains(&self.point.as_str())
            }
        }
    }
}

/// A share of the steps, in a random order; both follow from the seed. Frozen VMMs take minutes each: they
/// only run with all steps.
pub(crate) fn share(mut steps: Vec<Step>, seed: u64, count: Option<usize>) -> Vec<Step> {
    steps.sort();
    if count.is_some() {
        steps.retain(|step| step.fault != Fault::VmmFrozen);
    }
    steps.shuffle(&mut StdRng::seed_from_u64(seed));
    steps.truncate(count.unwrap_or(usize::MAX));
    steps
}

/// One of several equal parts of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// From 1 to `count`.
    nth: usize,
    count: usize,
}

impl Part {
    /// `2/4` is the second quarter.
    pub(crate) fn parse(text: &str) -> Option<Part> {
        let (nth, count) = text.split_once('/')?;
        let part = Part { nth: nth.parse().ok()?, count: count.parse().ok()? };
        (1..=part.count).contains(&part.nth).then_some(part)
    }

    /// Returns true for the last part.
    pub(crate) fn is_last(self) -> bool {
        self.nth == self.count
    }

    /// Every `count`th step, so each part has its share of the long ones.
    pub(crate) fn of(self, steps: Vec<Step>) -> Vec<Step> {
        steps.into_iter().skip(self.nth - 1).step_by(self.count).collect()
    }
}

#[test]
fn the_parts_have_each_step_once() {
    let passed: Vec<_> =
        (1..=9).map(|nth| Passing { point: format!("p{nth}"), nth: 1, action: String::new() }).collect();
    let all = share(steps(Call::PullImage, &passed), 1, None);
    let mut parts: Vec<_> = (1..=4).flat_map(|nth| Part { nth, count: 4 }.of(all.clone())).collect();
    parts.sort();
    let mut sorted = all;
    sorted.sort();
    assert_eq!(parts, sorted);
    assert_eq!(Part::parse("2/4"), Some(Part { nth: 2, count: 4 }));
    for wrong in ["", "2", "0/4", "5/4", "a/b", "1/0"] {
        assert_eq!(Part::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_call_with_many_pieces_has_its_first_ones_and_its_last_as_steps() {
    let passed = |point: &str, nth| Passing { point: point.into(), nth, action: String::new() };
    let mut passings: Vec<_> = (1..=50).map(|nth| passed("image.blob.write", nth)).collect();
    passings.extend([passed("image.rename", 1), passed("log.write", 1), passed("log.write", 2)]);
    let all = steps(Call::PullImage, &passings);
    let shown: Vec<_> = all.iter().map(ToString::to_string).collect();
    let blobs = shown.iter().filter(|step| step.contains("image.blob.write")).count();
    assert_eq!(blobs, 4 * 2, "{shown:?}");
    assert!(shown.contains(&"PullImage image.rename 1 Error".to_owned()), "{shown:?}");
    assert_eq!(shown.iter().filter(|step| step.contains("log.write")).count(), 1, "{shown:?}");
    assert_eq!(share(all.clone(), 7, Some(3)), share(all.clone(), 7, Some(3)));
    assert_ne!(share(all.clone(), 7, None), share(all, 8, None));
}
