//! VMMs killed by the node's kernel for lack of memory, according to their cgroups (`memory.events` in
//! Documentation/admin-guide/cgroup-v2.rst of the kernel). The cgroup stays until the pod is stopped, so a
//! restarted daemon reads the same. Without cgroup v2 nothing is known.
//!
//! | file | of | meaning |
//! |---|---|---|
//! | `memory.events`, `oom_kill` | the VMM's cgroup | the VMM was killed, at any cgroup's limit |
//! | `memory.events.local`, `oom` | the same cgroup and those above | this cgroup's limit was reached |
//!
//! The counters begin with their cgroups, and those above are older than the pod. So they are noted at the
//! pod's request, and what they had then is no matter of this pod.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cgroup;

/// Counters of the cgroups above a pod's, before the pod. All are 0 without cgroup v2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MemoryEventsBefore {
    /// Kills in the cgroup that is the pod's parent, and below it.
    kills: u64,
    /// How often each cgroup's own limit was reached, from the pod's parent upwards.
    limits_reached: Vec<u64>,
}

/// Reads the counters for a new pod with this parent.
pub(crate) fn before(root: &Path, parent: &str) -> MemoryEventsBefore {
    let above = cgroup::levels(root, parent, "").into_iter().skip(1);
    let above: Vec<PathBuf> = above.collect();
    let kills = above.first().map_or(0, |parent| kills(parent));
    MemoryEventsBefore { kills, limits_reached: above.iter().map(|level| reached(level)).collect() }
}

/// Says how the kernel killed the VMM, if it did: which cgroup reached which limit.
pub(crate) fn oom_kill(
    root: &Path,
    parent: &str,
    pod_id: &str,
    before: &MemoryEventsBefore,
) -> Option<String> {
    let levels = cgroup::levels(root, parent, pod_id);
    let own = levels.first().filter(|own| own.is_dir())?;
    // A cgroup without the controller is accounted by the one above. Only the pod's VMMs run there.
    let killed = match own.join("memory.events").exists() {
        true => kills(own) > 0,
        false => kills(levels.get(1)?) > before.kills,
    };
    if !killed {
        return None;
    }
    let reached_before = std::iter::once(0).chain(before.limits_reached.iter().copied());
    let reached_before = reached_before.chain(std::iter::repeat(0));
    let mut counted = levels.iter().zip(reached_before);
    let why = match counted.find(|(level, before)| reached(level) > *before) {
        Some((level, _)) => {
            let name = level.strip_prefix(root).unwrap_or(level).display();
            match cgroup::memory_max(level) {
                Some(bytes) => format!("the cgroup /{name} reached its limit of {} MiB", bytes >> 20),
                None => format!("the cgroup /{name} reached its limit"),
            }
        }
        None => "the node itself had none left".to_owned(),
    };
    Some(format!("the node's kernel killed the VMM for want of memory: {why}"))
}

/// Processes killed in the cgroup and below it.
fn kills(cgroup: &Path) -> u64 {
    count(&cgroup.join("memory.events"), "oom_kill")
}

/// How often the cgroup's own limit was reached.
fn reached(cgroup: &Path) -> u64 {
    count(&cgroup.join("memory.events.local"), "oom")
}

/// The value of a name in a file; 0 if there is none.
fn count(file: &Path, name: &str) -> u64 {
    cgroup::flat_keyed(&fs::read_to_string(file).unwrap_or_default(), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(dir).unwrap();
        for (name, text) in files {
            fs::write(dir.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_cgroup_whose_limit_was_reached_is_named_with_the_limit() {
        let none = MemoryEventsBefore::default();
        let root = tempfile::tempdir().unwrap();
        let pod = root.path().join("kubepods/pod1");
        write(root.path(), &[("cgroup.controllers", "memory")]);
        write(&pod, &[("memory.events.local", "oom 2\noom_kill 0\n"), ("memory.max", "67108864\n")]);
        let own = pod.join("podvisor-ab");
        assert_eq!(oom_kill(root.path(), "/kubepods/pod1", "ab", &none), None, "its cgroup is gone");
        write(&own, &[("memory.events", "oom 0\noom_kill 0\n"), ("memory.events.local", "oom 0\n")]);
        assert_eq!(oom_kill(root.path(), "/kubepods/pod1", "ab", &none), None);
        write(&own, &[("memory.events", "oom 0\noom_kill 1\noom_group_kill 0\n")]);
        let text = oom_kill(root.path(), "/kubepods/pod1", "ab", &none).unwrap();
        assert!(text.ends_with("the cgroup /kubepods/pod1 reached its limit of 64 MiB"), "{text}");
        write(&pod, &[("memory.events.local", "oom 0\n")]);
        let text = oom_kill(root.path(), "/kubepods/pod1", "ab", &none).unwrap();
        assert!(text.ends_with("the node itself had none left"), "{text}");
    }

    #[test]
    fn where_the_vmms_cgroup_does_not_account_the_one_above_is_read() {
        let none = MemoryEventsBefore::default();
        let root = tempfile::tempdir().unwrap();
        let slice = root.path().join("test.slice");
        write(root.path(), &[("cgroup.controllers", "memory")]);
        let events = "oom 1\noom_kill 1\n";
        write(&slice, &[("memory.events", events), ("memory.events.local", events), ("memory.max", "max\n")]);
        assert_eq!(oom_kill(root.path(), "test.slice", "ab", &none), None);
        write(&slice.join("podvisor-ab.scope"), &[]);
        let text = oom_kill(root.path(), "test.slice", "ab", &none).unwrap();
        assert!(text.ends_with("the cgroup /test.slice reached its limit"), "{text}");
    }

    #[test]
    fn a_node_with_the_first_version_of_cgroups_says_nothing() {
        let root = tempfile::tempdir().unwrap();
        write(&root.path().join("memory/podvisor/podvisor-ab"), &[("memory.events", "oom_kill 1\n")]);
        assert_eq!(oom_kill(root.path(), "", "ab", &before(root.path(), "")), None);
    }

    #[test]
    fn what_was_counted_before_the_pod_is_no_matter_of_it() {
        let root = tempfile::tempdir().unwrap();
        let (all, pod) = (root.path().join("kubepods"), root.path().join("kubepods/pod1"));
        write(root.path(), &[("cgroup.controllers", "memory")]);
        let limit = ("memory.max", "67108864\n");
        write(&all, &[("memory.events.local", "oom 1\n"), limit]);
        write(&pod, &[("memory.events.local", "oom 2\n"), limit]);
        let before = before(root.path(), "/kubepods/pod1");
        write(&pod.join("podvisor-ab"), &[("memory.events", "oom_kill 1\n")]);
        let says = || oom_kill(root.path(), "/kubepods/pod1", "ab", &before).unwrap();
        assert!(says().ends_with("the node itself had none left"), "{}", says());
        write(&all, &[("memory.events.local", "oom 2\n")]);
        assert!(says().ends_with("the cgroup /kubepods reached its limit of 64 MiB"), "{}", says());
        write(&pod, &[("memory.events.local", "oom 3\n")]);
        assert!(says().ends_with("the cgroup /kubepods/pod1 reached its limit of 64 MiB"), "{}", says());
    }

    #[test]
    fn a_kill_of_an_earlier_vmm_of_the_same_cgroup_is_none_of_this_one() {
        let root = tempfile::tempdir().unwrap();
        let slice = root.path().join("test.slice");
        write(root.path(), &[("cgroup.controllers", "memory")]);
        write(&slice, &[("memory.events", "oom_kill 1\n")]);
        let before = before(root.path(), "test.slice");
        write(&slice.join("podvisor-ab.scope"), &[]);
        assert_eq!(oom_kill(root.path(), "test.slice", "ab", &before), None);
        write(&slice, &[("memory.events", "oom_kill 2\n")]);
        assert!(oom_kill(root.path(), "test.slice", "ab", &before).is_some());
    }

    #[test]
    fn a_record_of_an_earlier_version_counts_from_zero() {
        let none: MemoryEventsBefore = serde_json::from_str("{}").unwrap();
        assert_eq!(none, MemoryEventsBefore::default());
    }
}
