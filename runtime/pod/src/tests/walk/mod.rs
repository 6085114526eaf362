//! Random walks: clients' calls, two at once here and there, programs' ends, VMs that crash and guests that hang in any
//! order, with a fault at any point of any backend and of the store, kills of the daemon, restarts of the node and damaged
//! records, against a model that predicts every answer.
//!
//! ```text
//!  action ── with a fault? ──► call ──► answered ──► the lists agree with the model, and the fakes with the lists
//!                               └────► killed ──► the next daemon ──► the same
//! ```
//!
//! After a call that failed the model takes on how its pod is, within what such a failure may leave (`permits.rs`); other
//! pods must be as they were. A daemon that is killed has published things that clients have seen: the next daemon must
//! find them so. Beside the lists, each look compares the guests, their slots and binds (`observed.rs`), the store and the
//! files (`kept.rs`) and the containers' logs (`log.rs`). A walk ends with the removal of all pods, after which nothing is
//! left anywhere, and no task goes on.
//!
//! `PODVISOR_WALK_SEED` replays one walk and prints its actions; `PODVISOR_WALKS` says how many there are, and
//! `PODVISOR_WALK_SECONDS` for how long they go on at most.

mod action;
mod calls;
mod down;
mod kept;
mod life;
mod log;
mod model;
mod observed;
mod perform;
mod permits;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use self::life::Walk;

/// Walks in a test run. Each takes some tens of milliseconds.
const WALKS: u64 = 40;
/// Actions in a walk.
const ACTIONS: usize = 50;

#[test]
fn whatever_fails_nothing_is_lost_doubled_or_left() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("PODVISOR_WALK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PODVISOR_WALKS").unwrap_or(WALKS),
    };
    let shown = number("PODVISOR_WALK_SEED").is_some();
    let mut points: BTreeMap<String, usize> = BTreeMap::new();
    let (mut walks, mut actions, mut faults, mut kills, mut violations) = (0, 0, 0, 0, Vec::new());
    let start = Instant::now();
    let within = number("PODVISOR_WALK_SECONDS").map(Duration::from_secs);
    for seed in seeds {
        if within.is_some_and(|within| start.elapsed() > within) {
            break;
        }
        walks += 1;
        let mut walk = Walk::new(seed, shown);
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| walk.run(ACTIONS)));
        let outcome = outcome.unwrap_or_else(|_| Err("a check of the fakes has panicked".to_owned()));
        actions += walk.actions;
        faults += walk.faults;
        kills += walk.kills;
        for (point, count) in walk.points() {
            *points.entry(point).or_default() += count;
        }
        if let Err(why) = outcome {
            println!("seed {seed}: {why}");
            violations.push(format!("seed {seed}: {why}\n{}", walk.last_actions()));
        }
    }
    println!("{walks} walks: {actions} actions, {faults} faults, {kills} kills, {} points", points.len());
    for (point, count) in &points {
        println!("  {count:8} {point}");
    }
    assert!(violations.is_empty(), "{} violations; the first:\n{}", violations.len(), violations[0]);
}
