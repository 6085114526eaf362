//! Who may be built from whom. The table is the architecture; a new edge is a change to it, made here.

use crate::Crate;

/// Each crate and the crates of ours that it may use. Test crates (`tests/…`) may use anything.
const MAY_USE: &[(&str, &[&str])] = &[
    // Wire contracts stand alone.
    ("proto-cri", &[]),
    ("proto-agent", &[]),
    ("proto-vmm", &[]),
    // The host side.
    (
        "podvisor",
        &[
            "proto-agent",
            "proto-cri",
            "proto-vmm",
            "runtime-cri",
            "runtime-erofs",
            "runtime-guest",
            "runtime-image",
            "runtime-logs",
            "runtime-net",
            "runtime-pod",
            "runtime-spec",
            "runtime-store",
            "runtime-streaming",
            "runtime-vm",
            "vmm-batch",
        ],
    ),
    (
        "runtime-cri",
        &["proto-cri", "runtime-image", "runtime-pieces", "runtime-pod", "runtime-spec", "runtime-streaming"],
    ),
    (
        "runtime-pod",
        &[
            // The messages that runtime-guest takes and the slots that runtime-vm takes.
            "proto-agent",
            "proto-vmm",
            "runtime-guest",
            "runtime-image",
            "runtime-logs",
            "runtime-net",
            "runtime-pieces",
            "runtime-share",
            "runtime-spec",
            "runtime-store",
            "runtime-vm",
        ],
    ),
    ("runtime-image", &["runtime-erofs", "runtime-spec"]),
    ("runtime-vm", &["proto-vmm"]),
    ("runtime-guest", &["proto-agent"]),
    ("runtime-spec", &[]),
    ("runtime-store", &[]),
    ("runtime-erofs", &[]),
    ("runtime-net", &["runtime-spec"]),
    ("runtime-logs", &[]),
    ("runtime-share", &[]),
    ("runtime-pieces", &[]),
    ("runtime-streaming", &["runtime-pieces"]),
    // The VMM.
    ("podvisor-vmm", &["proto-vmm", "vmm-devices", "vmm-vm"]),
    ("vmm-vm", &["proto-vmm", "vmm-devices"]),
    ("vmm-devices", &["proto-vmm", "vmm-batch"]),
    ("vmm-batch", &[]),
    // The guest side.
    ("podvisor-agent", &["agent-container", "proto-agent"]),
    ("agent-container", &[]),
];

/// Asynchronous runtimes, which must not be in a VMM: its threads block, and its seccomp filters are small.
/// mio alone is none, but a layer over epoll: fuse-backend-rs names it, for the part that we leave out (/dev/fuse).
const ASYNCHRONOUS: &[&str] = &["tokio", "async-std", "smol", "async-executor", "futures-executor"];

/// One line for each edge that the table does not allow, each crate it does not know, and each crate of
/// the VMM with an asynchronous runtime in it.
#[must_use]
pub fn check(crates: &[Crate]) -> Vec<String> {
    let mut breaches = Vec::new();
    for ours in crates.iter().filter(|ours| !ours.dir.starts_with("tests/")) {
        match MAY_USE.iter().find(|(name, _)| *name == ours.name) {
            None => breaches.push(format!("{}: not in the table of tests/tidy/src/edges.rs", ours.name)),
            Some((_, allowed)) => {
                let wrong = ours.uses.iter().filter(|used| !allowed.contains(&used.as_str()));
                breaches.extend(wrong.map(|used| format!("{} must not use {used}", ours.name)));
            }
        }
        if ours.dir.starts_with("vmm/") {
            let found = ASYNCHRONOUS.iter().filter(|name| ours.linked.contains(**name));
            breaches
                .extend(found.map(|name| format!("{} is synchronous, but {name} is linked in", ours.name)));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(name: &str, dir: &str, uses: &[&str], linked: &[&str]) -> Crate {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Crate { name: name.into(), dir: dir.into(), uses: set(uses), linked: set(linked), roots: vec![] }
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_is_found() {
        let good = ours("runtime-image", "runtime/image", &["runtime-erofs"], &["tokio"]);
        assert_eq!(check(&[good]), Vec::<String>::new());
        let bad = ours("runtime-image", "runtime/image", &["runtime-erofs", "runtime-pod"], &[]);
        assert_eq!(check(&[bad]), ["runtime-image must not use runtime-pod"]);
    }

    #[test]
    fn the_daemon_cannot_reach_into_the_vmm() {
        let bad = ours("runtime-vm", "runtime/vm", &["proto-vmm", "vmm-vm"], &[]);
        assert_eq!(check(&[bad]), ["runtime-vm must not use vmm-vm"]);
    }

    #[test]
    fn a_crate_that_nobody_placed_is_found_but_tests_are_free() {
        let found = check(&[
            ours("runtime-utils", "runtime/utils", &[], &[]),
            ours("tests-e2e", "tests/e2e", &["podvisor"], &[]),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("runtime-utils: not in the table"));
    }

    #[test]
    fn a_runtime_that_came_in_through_others_is_found() {
        let bad = ours("vmm-devices", "vmm/devices", &["proto-vmm"], &["libc", "tokio"]);
        assert_eq!(check(&[bad]), ["vmm-devices is synchronous, but tokio is linked in"]);
    }

    #[test]
    fn the_table_has_no_cycles_and_knows_what_it_names() {
        fn depth(name: &str, above: &mut Vec<String>) {
            assert!(!above.iter().any(|seen| seen == name), "{above:?} → {name}");
            let (_, uses) = MAY_USE.iter().find(|(known, _)| *known == name).expect(name);
            above.push(name.to_owned());
            uses.iter().for_each(|used| depth(used, above));
            above.pop();
        }
        MAY_USE.iter().for_each(|(name, _)| depth(name, &mut Vec::new()));
    }
}
