//! Compares the library's filter in the rules' order with the loaded ones: with the library's tree, and with
//! ranges of calls. An interpreter of classic BPF runs them.

use libseccomp::ScmpSyscall;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Filter, INSTRUCTION_BYTES};

/// `SCMP_FLTATR_CTL_OPTIMIZE`: by the rules' order.
const LINEAR: u32 = 1;
const BINARY_TREE: u32 = 2;

/// `struct seccomp_data` (include/uapi/linux/seccomp.h).
fn data(number: u32, architecture: u32, arguments: [u64; 6]) -> Vec<u8> {
    let head = [number.to_ne_bytes(), architecture.to_ne_bytes(), [0; 4], [0; 4]].concat();
    head.into_iter().chain(arguments.iter().flat_map(|argument| argument.to_ne_bytes())).collect()
}

/// A program's answer (Documentation/networking/filter.rst has the codes).
fn answer(program: &[u8], data: &[u8]) -> u32 {
    let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut accumulator, mut memory) = (0, 0, [0; 16]);
    loop {
        let line = &program[at * INSTRUCTION_BYTES..(at + 1) * INSTRUCTION_BYTES];
        let (code, value) = (u16::from_ne_bytes([line[0], line[1]]), word(line, 4));
        let jump = |taken: bool| usize::from(if taken { line[2] } else { line[3] });
        at += 1;
        match code {
            0x20 => accumulator = word(data, value as usize),
            0x54 => accumulator &= value,
            0x02 => memory[value as usize] = accumulator,
            0x60 => accumulator = memory[value as usize],
            0x05 => at += value as usize,
            0x15 => at += jump(accumulator == value),
            0x25 => at += jump(accumulator > value),
            0x35 => at += jump(accumulator >= value),
            0x45 => at += jump(accumulator & value != 0),
            0x06 => return value,
            other => panic!("no such instruction is known: {other:#x}"),
        }
    }
}

/// All calls of this kernel known to the library.
fn calls() -> Vec<String> {
    (0..500).filter_map(|number| ScmpSyscall::from(number).get_name().ok()).collect()
}

fn rule() -> impl Strategy<Value = Value> {
    let few =
        ["read", "clone", "socket", "prctl", "personality", "openat2", "mmap", "ioctl", "futex", "stat"];
    let calls = calls();
    let all = 1..calls.len();
    let names = prop_oneof![
        4 => proptest::sample::subsequence(few.map(str::to_owned).to_vec(), 1..6),
        1 => proptest::sample::subsequence(calls, all),
    ];
    let actions =
        ["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_LOG", "SCMP_ACT_TRAP"];
    let operators = [
        "SCMP_CMP_EQ",
        "SCMP_CMP_NE",
        "SCMP_CMP_LT",
        "SCMP_CMP_LE",
        "SCMP_CMP_GT",
        "SCMP_CMP_GE",
        "SCMP_CMP_MASKED_EQ",
    ];
    let argument = (0..3u32, proptest::sample::select(operators.to_vec()), 0..4u64, 0..4u64).prop_map(
        |(index, op, value, two)| json!({ "index": index, "op": op, "value": value, "valueTwo": two }),
    );
    let arguments = proptest::collection::vec(argument, 0..2);
    (names, proptest::sample::select(actions.to_vec()), arguments)
        .prop_map(|(names, action, args)| json!({ "names": names, "action": action, "args": args }))
}

proptest! {
    #[test]
    fn ranges_and_trees_answer_every_call_as_the_rules_order_does(
        rules in proptest::collection::vec(rule(), 0..8),
        default in proptest::sample::select(&["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL"][..]),
        arguments in proptest::collection::vec(proptest::array::uniform6(0..4u64), 2),
    ) {
        let rules = json!({ "defaultAction": default, "syscalls": rules,
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"] });
        let rules = serde_json::from_value(rules).unwrap();
        // Contradicting rules are refused, in either order.
        let compiled = |order| Filter::compile_as(&rules, order).map(|filter| filter.program);
        let (Ok(linear), Ok(tree)) = (compiled(LINEAR), compiled(BINARY_TREE)) else { return Ok(()) };
        let loaded = Filter::compile(&rules).unwrap().program;
        prop_assert!(loaded.len() <= tree.len());
        for architecture in [0xc000_003e, 0x4000_0003, 0xc000_00b7] {
            for number in (0..500).chain(0x3fff_ffff..0x4000_0230).chain([u32::MAX]) {
                for arguments in &arguments {
                    let data = data(number, architecture, *arguments);
                    let wanted = answer(&linear, &data);
                    prop_assert_eq!(answer(&tree, &data), wanted, "call {} by the tree", number);
                    prop_assert_eq!(answer(&loaded, &data), wanted, "call {} by ranges", number);
                }
            }
        }
    }
}

/// Most calls are allowed, one in ten is not, and some only with certain arguments, as in runtimes' own
/// filters.
#[test]
fn ranges_are_a_fraction_of_a_runtimes_filter() {
    let calls = calls();
    let allowed: Vec<&String> =
        calls.iter().enumerate().filter(|(at, _)| at % 10 != 0).map(|(_, call)| call).collect();
    let rules = json!({ "defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": [{ "names": allowed, "action": "SCMP_ACT_ALLOW" },
            { "names": [calls[0]], "action": "SCMP_ACT_ALLOW", "args": [{ "index": 0, "op": "SCMP_CMP_EQ", "value": 8 }] }] });
    let rules = serde_json::from_value(rules).unwrap();
    let tree = Filter::compile_as(&rules, BINARY_TREE).unwrap().program;
    let loaded = Filter::compile(&rules).unwrap().program;
    assert!(loaded.len() * 3 < tree.len(), "{} of {} bytes", loaded.len(), tree.len());
    println!("{} of {} bytes", loaded.len(), tree.len());
}
