//! Places and limits of pods' cgroups, in a directory like a mount of cgroups.

use proptest::prelude::*;

use super::*;

fn v2() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("cgroup.controllers"), "cpu").unwrap();
    dir
}

#[test]
fn the_pods_cgroup_is_a_child_of_the_kubelets() {
    assert_eq!(place("/kubepods/burstable/pod1", "ab"), Path::new("kubepods/burstable/pod1/podvisor-ab"));
}

#[test]
fn a_slice_is_where_systemd_has_it_and_its_child_is_a_scope() {
    let whole = Path::new("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice");
    let expected = whole.join("podvisor-ab.scope");
    assert_eq!(place("kubepods-burstable-podu_1.slice", "ab"), expected);
    assert_eq!(place(&format!("/{}", whole.display()), "ab"), expected);
    assert_eq!(place("/test.slice", "ab"), Path::new("test.slice/podvisor-ab.scope"));
    assert_eq!(place("-.slice", "ab"), Path::new("podvisor-ab.scope"));
}

#[test]
fn without_a_parent_it_is_in_our_own() {
    assert_eq!(place("", "ab"), Path::new("podvisor/podvisor-ab"));
    assert_eq!(place("/", "ab"), Path::new("podvisor/podvisor-ab"));
}

#[test]
fn a_node_without_cgroups_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let made = make(dir.path(), "", "ab");
    assert!(made.paths.is_empty() && made.missing.is_some());
    assert_eq!(memory_limit(dir.path(), ""), None);
    remove(dir.path(), "", "ab").unwrap();
}

#[test]
fn vmms_without_a_pod_have_one_cgroup_that_is_no_pods() {
    let dir = v2();
    let made = [make_unclaimed(dir.path()).paths, make_unclaimed(dir.path()).paths];
    assert_eq!(made[0], [dir.path().join("podvisor-unclaimed")]);
    assert_eq!(made[0], made[1]);
    assert_eq!(fs::read_to_string(made[0][0].join("cpu.weight")).unwrap(), "10");
    assert_eq!(fs::read_to_string(made[0][0].join("memory.swap.max")).unwrap(), "0");
    assert_eq!(find(dir.path()), []);
}

#[test]
fn it_is_made_and_taken_away_again() {
    let dir = v2();
    let Made { paths: made, missing: None } = make(dir.path(), "/kubepods", "ab") else { panic!("none") };
    assert_eq!(made, [dir.path().join("kubepods/podvisor-ab/vm")]);
    assert!(made[0].is_dir());
    remove(dir.path(), "/kubepods", "ab").unwrap();
    remove(dir.path(), "/kubepods", "ab").unwrap();
    assert!(!dir.path().join("kubepods/podvisor-ab").exists());
}

#[test]
fn what_counts_for_a_pod_is_its_cgroup_with_those_of_its_processes_in_it() {
    let dir = v2();
    make(dir.path(), "kubepods-pod1.slice", "ab");
    let own = dir.path().join("kubepods.slice/kubepods-pod1.slice/podvisor-ab.scope");
    assert!(own.join("vm").is_dir());
    assert_eq!(levels(dir.path(), "kubepods-pod1.slice", "ab")[0], own);
    assert_eq!(paths(dir.path(), "kubepods-pod1.slice", "ab"), [own]);
}

#[test]
fn the_least_limit_above_the_vmm_counts() {
    let dir = v2();
    let pod = dir.path().join("kubepods/burstable/pod1");
    fs::create_dir_all(&pod).unwrap();
    let limit = |level: &Path, text| fs::write(level.join("memory.max"), text).unwrap();
    limit(&pod, "max\n");
    assert_eq!(memory_limit(dir.path(), "/kubepods/burstable/pod1"), None);
    limit(&dir.path().join("kubepods"), "8192\n");
    let least = |bytes, cgroup: &str| Some(MemoryLimit { bytes, cgroup: cgroup.into() });
    assert_eq!(memory_limit(dir.path(), "/kubepods/burstable/pod1"), least(8192, "/kubepods"));
    limit(&pod, "4096\n");
    assert_eq!(memory_limit(dir.path(), "/kubepods/burstable/pod1"), least(4096, "/kubepods/burstable/pod1"));
}

#[test]
fn the_limit_of_tasks_is_that_of_the_pods_own_cgroup() {
    let dir = v2();
    let pod = dir.path().join("kubepods/burstable/pod1");
    fs::create_dir_all(&pod).unwrap();
    let limit = |level: &Path, text| fs::write(level.join("pids.max"), text).unwrap();
    assert_eq!(pids_limit(dir.path(), "/kubepods/burstable/pod1"), None);
    limit(&dir.path().join("kubepods"), "30000\n");
    limit(&pod, "max\n");
    assert_eq!(pids_limit(dir.path(), "/kubepods/burstable/pod1"), None);
    limit(&pod, "1024\n");
    assert_eq!(pids_limit(dir.path(), "/kubepods/burstable/pod1"), Some(1024));
}

#[test]
fn pods_cgroups_are_found_under_whichever_parent() {
    let dir = v2();
    let (one, other) = ("1a".repeat(32), "2b".repeat(32));
    let made = [("", &one), ("kubepods-pod1.slice", &other)]
        .map(|(parent, id)| make(dir.path(), parent, id).paths)
        .concat();
    fs::create_dir(dir.path().join("podvisor-of-somebody")).unwrap();
    let own = |processes: &Path| processes.parent().unwrap().to_owned();
    let mut expected = [(one, own(&made[0])), (other, own(&made[1]))];
    expected.sort();
    assert_eq!(find(dir.path()), expected);
}

#[test]
fn every_level_above_the_processes_passes_the_controllers_on() {
    let dir = v2();
    let own = "kubepods/pod1/podvisor-ab";
    let levels = ["", "kubepods", "kubepods/pod1", own].map(|level| dir.path().join(level));
    fs::create_dir_all(&levels[3]).unwrap();
    for level in &levels {
        fs::write(level.join("cgroup.subtree_control"), "").unwrap();
    }
    fs::write(levels[3].join("pids.max"), "max").unwrap();
    make(dir.path(), "/kubepods/pod1", "ab");
    assert_eq!(fs::read_to_string(levels[3].join("pids.max")).unwrap(), "4096");
    for level in &levels {
        assert_ne!(fs::read_to_string(level.join("cgroup.subtree_control")).unwrap(), "");
    }
}

#[test]
fn a_v1_node_has_one_for_each_hierarchy_that_accounts() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("cpu,cpuacct")).unwrap();
    fs::create_dir_all(dir.path().join("memory")).unwrap();
    for link in ["cpu", "cpuacct"] {
        std::os::unix::fs::symlink("cpu,cpuacct", dir.path().join(link)).unwrap();
    }
    let root = dir.path().canonicalize().unwrap();
    let made = make(&root, "", "ab").paths;
    let place = "podvisor/podvisor-ab";
    assert_eq!(made, [root.join("cpu,cpuacct").join(place), root.join("memory").join(place)]);
    remove(&root, "", "ab").unwrap();
    assert!(made.iter().all(|path| !path.exists()));
}

proptest! {
    #[test]
    fn each_slice_is_in_the_one_that_its_name_says(parts in proptest::collection::vec("[a-z0-9_]{1,6}", 1..6)) {
        let path = slice(&parts.join("-"));
        prop_assert_eq!(path.iter().count(), parts.len());
        for (depth, part) in path.iter().enumerate() {
            let name = format!("{}.slice", parts[..=depth].join("-"));
            prop_assert_eq!(part.to_str(), Some(name.as_str()));
        }
    }
}
