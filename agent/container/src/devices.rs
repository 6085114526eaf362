//! Access to device nodes: a specification's device rules as a BPF program on the container's cgroup. A
//! container with CAP_MKNOD can make any node, but the program stops it from opening the pod's disks through
//! one. This module makes no nodes.
//!
//! The program sees `struct bpf_cgroup_dev_ctx { access_type, major, minor }` (`include/uapi/linux/bpf.h`).
//! Its access type is `access << 16 | type`. The program returns 1 to allow. The last matching rule decides,
//! so the program checks the rules from the last to the first. If none matches, access is denied.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

use crate::bpf::{
    AND, EXIT, Instruction, JUMP_IF_EQUAL, JUMP_UNLESS_EQUAL, LOAD_WORD, MOVE, MOVE_REGISTER, SHIFT_RIGHT,
    instruction,
};
use crate::cgroup::Cgroup;
use crate::syscall;

/// Most rules. A pod's device list has tens, and the kernel takes a program of a million instructions.
const RULES_MAX: usize = 1000;

// BPF_DEVCG_DEV_* and BPF_DEVCG_ACC_* of `include/uapi/linux/bpf.h`.
const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;
const MKNOD: i32 = 1;
const READ: i32 = 2;
const WRITE: i32 = 4;
const ALL: i32 = MKNOD | READ | WRITE;

/// Device nodes of every container (OCI runtime specification, "Default Devices"), by major and minor: null,
/// zero, full, random, urandom, tty, console, ptmx, and all of devpts.
const DEFAULT: [(i32, Option<i32>); 9] = [
    (1, Some(3)),
    (1, Some(5)),
    (1, Some(7)),
    (1, Some(8)),
    (1, Some(9)),
    (5, Some(0)),
    (5, Some(1)),
    (5, Some(2)),
    (136, None),
];

/// Why the rules are not in force.
#[derive(Debug, thiserror::Error)]
pub enum DevicesError {
    /// More rules than the bound.
    #[error("{0} device rules are more than {RULES_MAX}")]
    TooMany(usize),
    /// A major or minor out of the kernel's range.
    #[error("{0} is no device number")]
    Number(i64),
    /// The kernel refused the program.
    #[error("cannot put the device rules on the cgroup")]
    Attach(#[source] io::Error),
}

/// One rule, in the kernel's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    allow: bool,
    /// `None` for both types.
    kind: Option<i32>,
    access: i32,
    major: Option<i32>,
    minor: Option<i32>,
}

/// Puts the rules on the cgroup for as long as it lives. Without any rule every device is allowed.
pub fn restrict(cgroup: &Cgroup, rules: &[LinuxDeviceCgroup]) -> Result<(), DevicesError> {
    if rules.is_empty() {
        return Ok(());
    }
    if rules.len() > RULES_MAX {
        return Err(DevicesError::TooMany(rules.len()));
    }
    let mut wanted = rules.iter().map(Rule::from_spec).collect::<Result<Vec<_>, _>>()?;
    wanted.extend(DEFAULT.map(|(major, minor)| Rule {
        allow: true,
        kind: Some(CHARACTER),
        access: ALL,
        major: Some(major),
        minor,
    }));
    let directory = File::open(cgroup.directory()).map_err(DevicesError::Attach)?;
    syscall::attach_device_program(directory.as_fd(), &program(&wanted)).map_err(DevicesError::Attach)
}

impl Rule {
    fn matches_all(self) -> bool {
        self.kind.is_none() && self.major.is_none() && self.minor.is_none() && self.access == ALL
    }

    fn from_spec(rule: &LinuxDeviceCgroup) -> Result<Rule, DevicesError> {
        let number = |number: Option<i64>| match number {
            None | Some(-1) => Ok(None),
            Some(number) => {
                i32::try_from(number).ok().filter(|n| *n >= 0).map(Some).ok_or(DevicesError::Number(number))
            }
        };
        let kind = match rule.typ() {
            Some(LinuxDeviceType::B) => Some(BLOCK),
            Some(LinuxDeviceType::C | LinuxDeviceType::U) => Some(CHARACTER),
            // A pipe is no device and always allowed: the rule matches nothing.
            Some(LinuxDeviceType::P) => Some(0),
            Some(LinuxDeviceType::A) | None => None,
        };
        let access = match rule.access() {
            None => ALL,
            Some(text) => text.chars().fold(0, |access, letter| {
                access
                    | match letter {
                        'r' => READ,
                        'w' => WRITE,
                        'm' => MKNOD,
                        _ => 0,
                    }
            }),
        };
        Ok(Rule {
            allow: rule.allow(),
            kind,
            access,
            major: number(rule.major())?,
            minor: number(rule.minor())?,
        })
    }
}

// Registers: the kernel reads the result from 0 and passes the context in 1. The program uses the others.
const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;
const SPARE: u8 = 6;

fn program(rules: &[Rule]) -> Vec<Instruction> {
    let mut program = vec![
        instruction(LOAD_WORD, KIND, CONTEXT, 0, 0),
        instruction(MOVE_REGISTER, ACCESS, KIND, 0, 0),
        instruction(AND, KIND, 0, 0, 0xffff),
        instruction(SHIFT_RIGHT, ACCESS, 0, 0, 16),
        instruction(LOAD_WORD, MAJOR, CONTEXT, 4, 0),
        instruction(LOAD_WORD, MINOR, CONTEXT, 8, 0),
    ];
    for rule in rules.iter().rev() {
        program.extend(block(*rule));
        if rule.matches_all() {
            // The kernel refuses a program with unreachable instructions.
            return program;
        }
    }
    program.push(instruction(MOVE, RESULT, 0, 0, 0));
    program.push(instruction(EXIT, 0, 0, 0, 0));
    program
}

/// Instructions for one rule: they end the program if the rule matches, and fall through otherwise.
fn block(rule: Rule) -> Vec<Instruction> {
    let mut block = Vec::new();
    for (register, wanted) in [(KIND, rule.kind), (MAJOR, rule.major), (MINOR, rule.minor)] {
        if let Some(wanted) = wanted {
            block.push(instruction(JUMP_UNLESS_EQUAL, register, 0, 0, wanted));
        }
    }
    if rule.access != ALL {
        block.push(instruction(MOVE_REGISTER, SPARE, ACCESS, 0, 0));
        if rule.allow {
            // A permission matches if the request asks for nothing beyond it.
            block.push(instruction(AND, SPARE, 0, 0, ALL & !rule.access));
            block.push(instruction(JUMP_UNLESS_EQUAL, SPARE, 0, 0, 0));
        } else {
            // A denial matches if the request asks for any part of it.
            block.push(instruction(AND, SPARE, 0, 0, rule.access));
            block.push(instruction(JUMP_IF_EQUAL, SPARE, 0, 0, 0));
        }
    }
    block.push(instruction(MOVE, RESULT, 0, 0, i32::from(rule.allow)));
    block.push(instruction(EXIT, 0, 0, 0, 0));
    let length = block.len();
    for (position, jump) in block.iter_mut().enumerate() {
        if matches!(jump.code, JUMP_UNLESS_EQUAL | JUMP_IF_EQUAL) {
            jump.offset =
                i16::try_from(length - position - 1).expect("a block has eight instructions at most");
        }
    }
    block
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::LinuxDeviceCgroupBuilder;
    use proptest::prelude::*;

    use super::*;

    /// Runs the program as the kernel would, by its instructions alone.
    fn interpret(program: &[Instruction], kind: i32, access: i32, major: i32, minor: i32) -> bool {
        let context = [access << 16 | kind, major, minor];
        let mut registers = [0i64; 11];
        let mut at = 0usize;
        loop {
            let Instruction { code, registers: pair, offset, immediate } = program[at];
            let (to, from) = (usize::from(pair & 15), usize::from(pair >> 4));
            let jump = usize::try_from(offset).unwrap();
            at += 1;
            match code {
                LOAD_WORD => registers[to] = i64::from(context[jump / 4]),
                MOVE => registers[to] = i64::from(immediate),
                MOVE_REGISTER => registers[to] = registers[from],
                AND => registers[to] &= i64::from(immediate),
                SHIFT_RIGHT => registers[to] >>= immediate,
                JUMP_UNLESS_EQUAL => at += if registers[to] == i64::from(immediate) { 0 } else { jump },
                JUMP_IF_EQUAL => at += if registers[to] == i64::from(immediate) { jump } else { 0 },
                EXIT => return registers[0] == 1,
                other => panic!("operation {other:#x}"),
            }
        }
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let kind = proptest::option::of(1i32..3);
        let number = || proptest::option::of(0i32..3);
        (any::<bool>(), kind, 1i32..8, number(), number())
            .prop_map(|(allow, kind, access, major, minor)| Rule { allow, kind, access, major, minor })
    }

    proptest! {
        #[test]
        fn the_last_rule_that_matches_decides(
            rules in proptest::collection::vec(rule(), 0..12),
            kind in 1i32..3, access in 1i32..8, major in 0i32..3, minor in 0i32..3,
        ) {
            let matches = |rule: &&Rule| {
                rule.kind.is_none_or(|wanted| wanted == kind)
                    && rule.major.is_none_or(|wanted| wanted == major)
                    && rule.minor.is_none_or(|wanted| wanted == minor)
                    && if rule.allow { access & !rule.access == 0 } else { access & rule.access != 0 }
            };
            let expected = rules.iter().rev().find(matches).is_some_and(|rule| rule.allow);
            prop_assert_eq!(interpret(&program(&rules), kind, access, major, minor), expected);
        }
    }

    #[test]
    fn a_rule_of_the_specification_is_read() {
        let rule = LinuxDeviceCgroupBuilder::default()
            .allow(true)
            .typ(LinuxDeviceType::B)
            .major(259)
            .minor(-1)
            .access("rm")
            .build()
            .unwrap();
        let expected =
            Rule { allow: true, kind: Some(BLOCK), access: READ | MKNOD, major: Some(259), minor: None };
        assert_eq!(Rule::from_spec(&rule).unwrap(), expected);
    }

    #[test]
    fn a_device_number_beyond_the_kernels_is_refused() {
        let rule = LinuxDeviceCgroupBuilder::default().allow(true).major(1i64 << 40).build().unwrap();
        assert!(matches!(Rule::from_spec(&rule), Err(DevicesError::Number(_))));
    }
}
