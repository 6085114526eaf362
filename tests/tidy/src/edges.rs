//! The crates and their dependencies. The table is the architecture: adding or removing an edge changes it,
//! so the same commit changes it here.

use crate::Crate;

/// Each crate and its dependencies among our crates. Test crates (`tests/…`) may use anything.
const USES: &[(&str, &[&str])] = &[
    // Wire contracts stand alone.
    ("proto-cri", &[]),
    ("proto-agent", &[]),
    ("proto-device-plugin", &[]),
    ("proto-images", &[]),
    ("proto-seccomp", &[]),
    ("proto-nri", &[]),
    ("proto-vmm", &[]),
    // The host side.
    (
        "podvisor",
        &[
            "proto-agent",
            "proto-cri",
            "proto-images",
            "proto-nri",
            "proto-vmm",
            "runtime-cdi",
            "runtime-connector",
            "runtime-cri",
            "runtime-device-plugin",
            "runtime-fail-points",
            "runtime-guest",
            "runtime-image",
            "runtime-net",
            "runtime-node",
            "runtime-nri",
            "runtime-pod",
            "runtime-spans",
            "runtime-spec",
            "runtime-streaming",
            "runtime-traces",
            "runtime-vm",
            "vmm-sched-batch",
        ],
    ),
    (
        "runtime-cri",
        &[
            "proto-cri",
            "proto-images",
            "proto-nri",
            "runtime-blocking",
            "runtime-cdi",
            "runtime-fail-points",
            "runtime-image",
            "runtime-nri",
            "runtime-pieces",
            "runtime-pod",
            "runtime-spans",
            "runtime-spec",
            "runtime-streaming",
            "runtime-traces",
        ],
    ),
    (
        "runtime-pod",
        &[
            // runtime-guest's messages and runtime-vm's slots.
            "proto-agent",
            "proto-seccomp",
            "proto-vmm",
            "runtime-blocking",
            "runtime-connector",
            "runtime-fail-points",
            "runtime-guest",
            "runtime-image",
            "runtime-large-pages",
            "runtime-logs",
            "runtime-net",
            "runtime-pieces",
            "runtime-share",
            "runtime-spans",
            "runtime-spec",
            "runtime-store",
            "runtime-vm",
            "runtime-ways",
        ],
    ),
    ("runtime-device-plugin", &["proto-device-plugin"]),
    (
        "runtime-image",
        &["runtime-blocking", "runtime-fail-points", "runtime-erofs", "runtime-spans", "runtime-spec"],
    ),
    ("runtime-vm", &["runtime-blocking", "runtime-fail-points", "runtime-spans", "proto-vmm"]),
    ("runtime-guest", &["runtime-fail-points", "proto-agent", "runtime-spans", "runtime-spec"]),
    ("runtime-spec", &["proto-seccomp"]),
    ("runtime-store", &["runtime-fail-points"]),
    ("runtime-erofs", &[]),
    ("runtime-node", &[]),
    ("runtime-nri", &["proto-nri"]),
    ("runtime-net", &["runtime-blocking", "runtime-fail-points", "runtime-spans", "runtime-spec"]),
    ("runtime-logs", &["runtime-blocking", "runtime-fail-points"]),
    ("runtime-blocking", &[]),
    ("runtime-cdi", &[]),
    ("runtime-connector", &["runtime-blocking", "runtime-fail-points", "runtime-ways"]),
    ("runtime-share", &["runtime-fail-points"]),
    ("runtime-fail-points", &[]),
    ("runtime-large-pages", &[]),
    ("runtime-pieces", &[]),
    ("runtime-spans", &[]),
    ("runtime-ways", &[]),
    ("runtime-traces", &["runtime-spans"]),
    ("runtime-streaming", &["runtime-pieces"]),
    // The VMM.
    ("podvisor-vmm", &["proto-vmm", "vmm-vm"]),
    ("vmm-vm", &["proto-vmm", "vmm-devices"]),
    ("vmm-devices", &["vmm-sched-batch"]),
    ("vmm-sched-batch", &[]),
    // The guest side.
    ("podvisor-agent", &["agent-container", "proto-agent", "proto-seccomp", "runtime-ways"]),
    ("agent-container", &["proto-seccomp"]),
];

/// Asynchronous runtimes, forbidden in a VMM: its threads block, and its seccomp filters are small. mio alone
/// is none, but a layer over epoll: fuse-backend-rs names it, for a part left out by us (/dev/fuse).
const ASYNCHRONOUS: &[&str] = &["tokio", "async-std", "smol", "async-executor", "futures-executor"];

type Table = [(&'static str, &'static [&'static str])];

/// One line for each difference between the table and the crates, in edges as in names, and for each crate of
/// the VMM with an asynchronous runtime in it.
#[must_use]
pub fn check(crates: &[Crate]) -> Vec<String> {
    compare(crates, USES)
}

fn compare(crates: &[Crate], table: &Table) -> Vec<String> {
    let gone = table.iter().filter(|(name, _)| !crates.iter().any(|ours| ours.name == *name));
    let mut breaches: Vec<_> = gone
        .map(|(name, _)| format!("{name}: in the table of tests/tidy/src/edges.rs, but no crate"))
        .collect();
    for ours in crates.iter().filter(|ours| !ours.dir.starts_with("tests/")) {
        match table.iter().find(|(name, _)| *name == ours.name) {
            None => breaches.push(format!("{}: not in the table of tests/tidy/src/edges.rs", ours.name)),
            Some((_, allowed)) => {
                let wrong = ours.uses.iter().filter(|used| !allowed.contains(&used.as_str()));
                breaches.extend(wrong.map(|used| format!("{} must not use {used}", ours.name)));
                let unused = allowed.iter().filter(|used| !ours.uses.contains(**used));
                breaches.extend(unused.map(|used| {
                    format!(
                        "{} does not use {used}; take it from the table of tests/tidy/src/edges.rs",
                        ours.name
                    )
                }));
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

    const TABLE: &Table = &[
        ("runtime-image", &["runtime-erofs"]),
        ("runtime-erofs", &[]),
        ("vmm-devices", &["vmm-sched-batch"]),
    ];

    fn found(image: &[&str], devices: &[&str], linked: &[&str]) -> Vec<String> {
        let crates = [
            ours("runtime-image", "runtime/image", image, &["tokio"]),
            ours("runtime-erofs", "runtime/erofs", &[], &[]),
            ours("vmm-devices", "vmm/devices", devices, linked),
            ours("tests-e2e", "tests/e2e", &["podvisor"], &[]),
        ];
        compare(&crates, TABLE)
    }

    #[test]
    fn crates_as_in_the_table_and_test_crates_are_no_breach() {
        assert_eq!(found(&["runtime-erofs"], &["vmm-sched-batch"], &["libc"]), Vec::<String>::new());
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_is_found() {
        let found = found(&["runtime-erofs", "runtime-pod"], &["vmm-sched-batch"], &[]);
        assert_eq!(found, ["runtime-image must not use runtime-pod"]);
    }

    #[test]
    fn an_edge_of_the_table_that_is_not_used_is_found() {
        let expected =
            "runtime-image does not use runtime-erofs; take it from the table of tests/tidy/src/edges.rs";
        assert_eq!(found(&[], &["vmm-sched-batch"], &[]), [expected]);
    }

    #[test]
    fn a_crate_that_nobody_placed_and_one_that_is_gone_are_found() {
        let crates = [ours("runtime-images", "runtime/images", &[], &[])];
        let found = compare(&crates, &[("runtime-image", &[])]);
        let expected = [
            "runtime-image: in the table of tests/tidy/src/edges.rs, but no crate",
            "runtime-images: not in the table of tests/tidy/src/edges.rs",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_daemon_cannot_reach_into_the_vmm() {
        let reaches =
            |name: &str| USES.iter().any(|(known, uses)| *known == name && uses.contains(&"vmm-devices"));
        let (daemon, _) = USES.iter().find(|(name, _)| *name == "podvisor").expect("the daemon");
        assert!(!reaches(daemon) && !reaches("runtime-vm") && !reaches("runtime-pod"));
        assert!(reaches("vmm-vm"));
    }

    #[test]
    fn a_runtime_that_came_in_through_others_is_found() {
        let found = found(&["runtime-erofs"], &["vmm-sched-batch"], &["libc", "tokio"]);
        assert_eq!(found, ["vmm-devices is synchronous, but tokio is linked in"]);
    }

    #[test]
    fn the_table_has_no_cycles_and_knows_what_it_names() {
        fn depth(name: &str, above: &mut Vec<String>) {
            assert!(!above.iter().any(|seen| seen == name), "{above:?} → {name}");
            let (_, uses) = USES.iter().find(|(known, _)| *known == name).expect(name);
            above.push(name.to_owned());
            uses.iter().for_each(|used| depth(used, above));
            above.pop();
        }
        USES.iter().for_each(|(name, _)| depth(name, &mut Vec::new()));
    }
}
