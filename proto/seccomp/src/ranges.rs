//! A shorter program with the same answers.
//!
//! The library compares with one call after another. Most neighbouring calls get the same answer, so ranges
//! of calls make the program much shorter. The kernel translates a program several times at each load, and
//! each command of a container loads it.
//!
//! ```text
//!  load architecture ── x86-64 ──▶ load number ── at least 100? ── at least 150? ──▶ an answer, or a part of
//!                    ├─ i386 ────▶ …                                                 the library's program
//!                    └─ another ─▶ an answer                                         to check arguments
//! ```

use std::collections::{BTreeSet, HashMap};

use crate::instruction::{
    AND, ARCHITECTURE, I386, Instruction, JUMP, JUMP_IF_ANY_BIT, JUMP_IF_EQUAL, JUMP_IF_GREATER,
    JUMP_IF_NOT_LESS, LOAD_MEMORY, LOAD_WORD, NUMBER, RETURN, STORE, X86_64, instructions,
};

/// Longest conditional jump: 255, less two possible jumps in between.
const NEAR: usize = 250;

/// A program's result for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Outcome {
    Answer(u32),
    /// The program checks arguments, starting at this instruction.
    Arguments(usize),
}

/// The same program by ranges of calls. Returns `None` if it has an instruction unknown from the library, or
/// if ranges do not make it shorter.
pub(crate) fn by_ranges(program: &[u8]) -> Option<Vec<u8>> {
    let library = instructions(program);
    let outside = outcome(&library, 0, 0)?;
    let [x86_64, i386] = [X86_64, I386].map(|architecture| ranges(&library, architecture));
    let (x86_64, i386) = (x86_64?, i386?);

    let mut writer = Writer::default();
    let outcomes = x86_64.iter().chain(&i386).map(|range| range.1).chain([outside]);
    writer.copy(&library, outcomes)?;
    let outside = writer.outcome(outside);
    let i386 = writer.architecture(&i386);
    let behind = writer.branch(JUMP_IF_EQUAL, I386, i386, outside);
    let x86_64 = writer.architecture(&x86_64);
    let first = writer.branch(JUMP_IF_EQUAL, X86_64, x86_64, behind);
    writer.before(first, Instruction::plain(LOAD_WORD, ARCHITECTURE));
    (writer.reversed.len() < library.len()).then(|| writer.bytes())
}

/// Follows a program to its answer or to its check of arguments.
fn outcome(program: &[Instruction], architecture: u32, number: u32) -> Option<Outcome> {
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let instruction = program.get(at)?;
        let value = instruction.value;
        let branch =
            |condition| usize::from(if condition { instruction.if_true } else { instruction.if_false });
        at += match instruction.code {
            RETURN => return Some(Outcome::Answer(value)),
            LOAD_WORD => {
                accumulator = match value {
                    NUMBER => number,
                    ARCHITECTURE => architecture,
                    _ => return Some(Outcome::Arguments(at)),
                };
                0
            }
            JUMP => value as usize,
            JUMP_IF_EQUAL => branch(accumulator == value),
            JUMP_IF_GREATER => branch(accumulator > value),
            JUMP_IF_NOT_LESS => branch(accumulator >= value),
            _ => return None,
        } + 1;
    }
}

/// The first calls of ranges in their order, each with the outcome of the whole range. Only numbers compared
/// by the program can begin a range.
fn ranges(program: &[Instruction], architecture: u32) -> Option<Vec<(u32, Outcome)>> {
    let compares = |code| matches!(code, JUMP_IF_EQUAL | JUMP_IF_GREATER | JUMP_IF_NOT_LESS);
    let values =
        program.iter().filter(|instruction| compares(instruction.code)).map(|instruction| instruction.value);
    let starts: BTreeSet<u32> =
        values.flat_map(|value| [value, value.saturating_add(1)]).chain([0]).collect();
    let mut ranges: Vec<(u32, Outcome)> = Vec::new();
    for start in starts {
        let outcome = outcome(program, architecture, start)?;
        if ranges.last().is_none_or(|range| range.1 != outcome) {
            ranges.push((start, outcome));
        }
    }
    Some(ranges)
}

/// Position of an instruction, as the number of instructions from it to the program's end.
type Label = usize;

/// Writes a program from its end to its start, so that all targets of a jump are known.
#[derive(Default)]
struct Writer {
    reversed: Vec<Instruction>,
    labels: HashMap<Outcome, Label>,
}

impl Writer {
    fn push(&mut self, instruction: Instruction) -> Label {
        self.reversed.push(instruction);
        self.reversed.len()
    }

    /// Number of instructions to skip from the next one to this label.
    fn distance(&self, label: Label) -> usize {
        self.reversed.len() - label
    }

    /// An instruction followed by another one.
    fn before(&mut self, next: Label, instruction: Instruction) -> Label {
        self.near(next, 0);
        self.push(instruction)
    }

    /// A label for the same place, at most `distance` instructions away.
    fn near(&mut self, label: Label, distance: usize) -> Label {
        match u32::try_from(self.distance(label)) {
            Ok(far) if far as usize > distance => self.push(Instruction::plain(JUMP, far)),
            _ => label,
        }
    }

    fn branch(&mut self, code: u16, value: u32, if_true: Label, if_false: Label) -> Label {
        let (if_true, if_false) = (self.near(if_true, NEAR), self.near(if_false, NEAR));
        let [if_true, if_false] =
            [if_true, if_false].map(|label| u8::try_from(self.distance(label)).unwrap_or(u8::MAX));
        self.push(Instruction { code, if_true, if_false, value })
    }

    /// Distant answers are written again. Parts for arguments have been copied before.
    fn outcome(&mut self, outcome: Outcome) -> Label {
        match (outcome, self.labels.get(&outcome)) {
            (Outcome::Answer(answer), label) if label.is_none_or(|label| self.distance(*label) > NEAR) => {
                let label = self.push(Instruction::plain(RETURN, answer));
                self.labels.insert(outcome, label);
                label
            }
            (_, label) => label.copied().unwrap_or_default(),
        }
    }

    /// Copies a program's parts for checking arguments.
    fn copy(&mut self, program: &[Instruction], outcomes: impl Iterator<Item = Outcome>) -> Option<()> {
        for at in reachable(program, outcomes)?.into_iter().rev() {
            let instruction = program[at];
            let Instruction { code, if_true, if_false, value } = instruction;
            let mut behind = |skipped: usize| self.outcome(place(program, at + 1 + skipped));
            let label = match code {
                JUMP => behind(value as usize),
                LOAD_WORD | LOAD_MEMORY | STORE | AND => {
                    let next = behind(0);
                    self.before(next, instruction)
                }
                _ => {
                    let (if_true, if_false) = (behind(if_true.into()), behind(if_false.into()));
                    self.branch(code, value, if_true, if_false)
                }
            };
            self.labels.insert(Outcome::Arguments(at), label);
        }
        Some(())
    }

    fn architecture(&mut self, ranges: &[(u32, Outcome)]) -> Label {
        let tree = self.tree(ranges);
        if ranges.len() == 1 { tree } else { self.before(tree, Instruction::plain(LOAD_WORD, NUMBER)) }
    }

    fn tree(&mut self, ranges: &[(u32, Outcome)]) -> Label {
        if let [(_, outcome)] = *ranges {
            return self.outcome(outcome);
        }
        let (left, right) = ranges.split_at(ranges.len() / 2);
        let (if_true, if_false) = (self.tree(right), self.tree(left));
        self.branch(JUMP_IF_NOT_LESS, right[0].0, if_true, if_false)
    }

    fn bytes(&self) -> Vec<u8> {
        self.reversed.iter().rev().flat_map(|instruction| instruction.to_bytes()).collect()
    }
}

/// The target for an instruction of the old program.
fn place(program: &[Instruction], at: usize) -> Outcome {
    match program[at] {
        Instruction { code: RETURN, value, .. } => Outcome::Answer(value),
        _ => Outcome::Arguments(at),
    }
}

/// All instructions reachable from parts for arguments, except answers. All jumps go forward.
fn reachable(program: &[Instruction], outcomes: impl Iterator<Item = Outcome>) -> Option<BTreeSet<usize>> {
    let mut found = BTreeSet::new();
    let mut starts: Vec<Outcome> = outcomes.collect();
    while let Some(start) = starts.pop() {
        let Outcome::Arguments(at) = start else { continue };
        if !found.insert(at) {
            continue;
        }
        let Instruction { code, if_true, if_false, value } = program[at];
        let skipped = match code {
            JUMP => [value as usize; 2],
            LOAD_WORD | LOAD_MEMORY | STORE | AND => [0; 2],
            JUMP_IF_EQUAL | JUMP_IF_GREATER | JUMP_IF_NOT_LESS | JUMP_IF_ANY_BIT => {
                [if_true, if_false].map(usize::from)
            }
            _ => return None,
        };
        for skipped in skipped {
            program.get(at + 1 + skipped)?;
            starts.push(place(program, at + 1 + skipped));
        }
    }
    Some(found)
}
