//! `red-team`: tries to escape from a VMM and from its share, as an attacker who runs code there would. It
//! takes a thread of the shipped program over (ptrace(2)) and makes calls with it. Each attempt is made
//! without walls, with each wall alone, and with all.
//!
//! Needs root, /dev/kvm and a node to spare: `tests/node/run`. What the walls keep from an attacker, this
//! program does to the node when they are missing.

#![forbid(unsafe_code)]

mod accepted;
mod attempt;
mod attempts;
#[path = "../../../vmm/podvisor-vmm/tests/process/elf.rs"]
mod elf;
mod hand;
mod node;
mod outcome;
mod tracer;
mod victim;
mod walls;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

use attempt::Attempt;
use hand::{Refusal, Tried};
use node::Node;
use outcome::{Outcome, Outcomes};
use victim::{Role, Victim};
use walls::{Standing, Wall};

/// Attempts to escape, as a table.
#[derive(Debug, Parser)]
struct Args {
    /// Directory of podvisor-vmm
    #[arg(long)]
    bin: PathBuf,
    /// Print each outcome as it is seen
    #[arg(long)]
    verbose: bool,
    /// Only attempts with one of these words in their names
    names: Vec<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let program = args.bin.join("podvisor-vmm").canonicalize().context("finding podvisor-vmm")?;
    let is_asked = |attempt: &Attempt| {
        args.names.is_empty() || args.names.iter().any(|name| attempt.name.contains(name.as_str()))
    };
    let attempts: Vec<Attempt> = attempts::all().into_iter().filter(is_asked).collect();
    let node = Node::new()?;
    let mut outcomes = Outcomes::default();
    let only = Wall::ALL.map(Standing::Only);
    for standing in [&[Standing::None], &only[..], &[Standing::All]].concat() {
        for role in Role::ALL {
            let mut victim = None;
            for attempt in attempts.iter().filter(|attempt| attempt.roles.contains(&role)) {
                let tried = make(attempt, role, standing, &program, &node, &mut victim);
                let outcome = Outcome::of(tried)
                    .with_context(|| format!("{} by the {}, {standing:?}", attempt.name, role.name()))?;
                if args.verbose {
                    println!("{standing:?} {} {}: {outcome:?}", role.name(), attempt.name);
                }
                outcomes.set(role, attempt.name, standing, outcome);
            }
        }
    }
    let (text, breaches) = outcomes.report();
    print!("{text}");
    Ok(if breaches == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes one attempt. A victim that is still as it was stays for the next.
fn make(
    attempt: &Attempt,
    role: Role,
    standing: Standing,
    program: &std::path::Path,
    node: &Node,
    kept: &mut Option<Victim>,
) -> Tried {
    let mut victim = match kept.take() {
        Some(victim) => victim,
        None => Victim::start(program, node, standing)?,
    };
    let tried = victim.hand(role).and_then(|mut hand| (attempt.run)(&mut hand, node));
    let tried = tried.map_err(|refusal| match refusal {
        Refusal::Fault(fault) => Refusal::Fault(fault.context(victim.log())),
        other => other,
    });
    let is_as_it_was = match &tried {
        Ok(()) => !attempt.changes,
        Err(refusal) => matches!(refusal, Refusal::Error(_)),
    };
    if is_as_it_was && victim.is_alive() {
        *kept = Some(victim);
    }
    tried
}
