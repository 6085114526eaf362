//! Each difference alone, on an otherwise consistent node; and cases without a difference.

use runtime_net::NetworkTrace;

use super::*;
use crate::dirs::run_name;
use crate::doctor::files::Acks;
use crate::doctor::{DaemonPlace, OnRecord, PodOnRecord};

fn id(digits: &str) -> String {
    digits.repeat(32)
}

fn dirs(name: &str) -> DaemonDirs {
    let at = |root: &str| PathBuf::from(format!("/{root}/{name}"));
    DaemonDirs { state_dir: at("state"), run_dir: at("run") }
}

/// A daemon with the pods "aa", ready, and "bb", not ready.
fn daemon(name: &str, life: Life) -> Daemon {
    let pod = |id: String, ready| (id, PodOnRecord { name: "default/web".into(), ready, unclean: None });
    let record = OnRecord {
        pods: [pod(id("aa"), true), pod(id("bb"), false)].into(),
        containers: ["c1".to_owned()].into(),
        ..OnRecord::default()
    };
    let place = DaemonPlace { dirs: dirs(name), socket: "/run/x.sock".into(), life };
    Daemon { place, record }
}

fn vmm(dirs: &DaemonDirs, pod: &str) -> RunningVmm {
    RunningVmm {
        process: VmmProcess { pid: 42, start_time: 1, boot: None },
        control_socket: dirs.control_socket(&id(pod)),
        attended: false,
    }
}

fn trace(pod: &str) -> NetworkTrace {
    NetworkTrace { pod_id: id(pod), path: format!("/run/netns/podvisor-{}", id(pod)).into() }
}

/// A node in order.
fn node() -> OnNode {
    let (a, b) = (id("aa"), id("bb"));
    let files = DaemonFiles {
        state_dirs: [(a.clone(), 4096), (b.clone(), 0)].into(),
        run_dirs: [(run_name(&a).to_owned(), 1)].into(),
        acks: vec![Acks { pod: run_name(&a).into(), container: "c1".into(), path: "/c1.acks".into() }],
        has_run_dir: true,
        ..DaemonFiles::default()
    };
    OnNode {
        vmms: vec![vmm(&dirs("node"), "aa")],
        networks: vec![trace("aa")],
        leases: vec![(a.clone(), "/leases/10.87.0.2".into())],
        cgroups: vec![(a.clone(), "/cg/a".into()), (b, "/cg/b".into())],
        daemons: vec![files],
    }
}

fn texts(daemons: &[Daemon], node: &OnNode) -> Vec<(String, bool)> {
    differences(daemons, node).into_iter().map(|found| (found.what.clone(), found.is_leftover())).collect()
}

#[test]
fn a_node_in_order_has_no_differences() {
    for life in [Life::Serving, Life::Stopped] {
        assert_eq!(texts(&[daemon("node", life)], &node()), []);
    }
}

/// Each row: a change to a node in order, the words of the one difference, and whether it is a leftover.
#[test]
fn each_difference_is_named_with_its_place_and_only_what_is_nobodys_is_a_leftover() {
    type Row = (fn(&mut Daemon, &mut OnNode), &'static str, bool);
    let rows: &[Row] = &[
        (|_, node| node.vmms.clear(), "pod default/web (aaaa", false),
        (
            |daemon, _| daemon.record.pods.get_mut(&id("bb")).unwrap().unclean = Some("a disk".into()),
            "could not be removed whole: a disk",
            false,
        ),
        (
            |_, node| node.vmms.push(vmm(&dirs("node"), "cc")),
            "VMM process 42 of /run/node runs for pod cccc",
            true,
        ),
        (|_, node| node.vmms.push(vmm(&dirs("other"), "cc")), "of the run directory /run/other", false),
        (|_, node| node.networks.push(trace("cc")), "/run/netns/podvisor-cccc", true),
        (
            |_, node| node.leases.push((id("cc"), "/leases/10.87.0.3".into())),
            "address /leases/10.87.0.3",
            true,
        ),
        (|_, node| node.cgroups.push((id("cc"), "/cg/c".into())), "cgroup /cg/c", true),
        (|_, node| node.daemons[0].state_dirs.extend([(id("cc"), 8192)]), "with 8 KiB", true),
        (|_, node| node.daemons[0].run_dirs.extend([("cccc".to_owned(), 2)]), "cccc with 2 mounts", true),
        (|_, node| node.daemons[0].acks[0].container = "c2".into(), "file /c1.acks of container c2", true),
        (|_, node| node.daemons[0].image_files.push("/images/x".into()), "file /images/x", true),
        (|_, node| node.daemons[0].images_missing.push("sha256:1".into()), "image sha256:1", false),
        (|_, node| node.daemons[0].stale_socket = Some("/run/x.sock".into()), "socket /run/x.sock", true),
        (|daemon, _| daemon.record.unreadable.push("torn".into()), "torn", false),
        (|daemon, _| daemon.record.quarantined.push("t/k".into()), "the value t/k", true),
    ];
    for (change, words, is_leftover) in rows {
        let (mut daemon, mut node) = (daemon("node", Life::Stopped), node());
        change(&mut daemon, &mut node);
        let found = texts(&[daemon], &node);
        assert_eq!(found.len(), 1, "{words}: {found:?}");
        assert!(found[0].0.contains(words), "{words}: {found:?}");
        assert_eq!(found[0].1, *is_leftover, "{words}");
    }
}

#[test]
fn what_a_vmm_of_a_daemon_elsewhere_runs_for_is_nobodys_leftover() {
    let mut node = node();
    node.networks.push(trace("cc"));
    node.cgroups.push((id("cc"), "/cg/c".into()));
    node.vmms.push(RunningVmm { attended: true, ..vmm(&dirs("other"), "cc") });
    assert_eq!(texts(&[daemon("node", Life::Serving)], &node), []);
}

#[test]
fn pods_of_a_private_daemon_are_its_own_while_it_runs_and_nobodys_when_it_is_over() {
    let private = DaemonFiles {
        run_dirs: [(run_name(&id("dd")).to_owned(), 1)].into(),
        has_run_dir: true,
        ..DaemonFiles::default()
    };
    let mut node = node();
    node.daemons.push(private);
    node.networks.push(trace("dd"));
    node.vmms.push(vmm(&dirs("private"), "dd"));
    let mut second = daemon("private", Life::Serving);
    second.record.pods =
        [(id("dd"), PodOnRecord { name: "podvisor-run/run-1".into(), ready: true, unclean: None })].into();
    let first = daemon("node", Life::Stopped);
    assert_eq!(texts(&[first.clone(), second.clone()], &node), []);
    second.place.life = Life::Over;
    second.record = OnRecord::default();
    let found = differences(&[first, second], &node);
    let order: Vec<_> = found.iter().map(|found| found.leftover.clone().unwrap()).collect();
    assert!(
        matches!(
            &order[..],
            [Leftover::Vmm(_), Leftover::Network(_), Leftover::RunDir(..), Leftover::Place(_)]
        ),
        "{order:?}"
    );
}

#[test]
fn work_under_way_is_no_difference() {
    let (mut first, mut second) = (node(), node());
    first.networks.push(trace("cc"));
    second.networks.push(trace("dd"));
    for node in [&mut first, &mut second] {
        node.networks.push(trace("ee"));
    }
    let look = |node: &OnNode| differences(&[daemon("node", Life::Serving)], node);
    let found = in_both(&look(&first), look(&second));
    assert_eq!(found.len(), 1);
    assert!(found[0].what.contains(&id("ee")));
}

#[test]
fn a_directory_whose_vm_goes_on_writing_is_one_difference() {
    let look = |bytes| {
        let mut node = node();
        node.daemons[0].state_dirs.extend([(id("cc"), bytes)]);
        differences(&[daemon("node", Life::Stopped)], &node)
    };
    let found = in_both(&look(8192), look(16384));
    assert_eq!(found.len(), 1);
    assert!(found[0].what.contains("with 16 KiB"), "{found:?}");
}

#[test]
fn a_running_daemons_quarantine_is_left_to_it() {
    let mut daemon = daemon("node", Life::Serving);
    daemon.record.quarantined.push("t/k".into());
    let found = differences(&[daemon], &node());
    assert!(found.len() == 1 && !found[0].is_leftover(), "{found:?}");
}
