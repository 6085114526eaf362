//! VMMs killed by the node's kernel for lack of memory, according to their cgroups (`memory.events` in
//! Documentation/admin-guide/cgroup-v2.rst of the kernel). The cgroup stays until the pod is stopped, so a
//! restarted daemon reads the same. Without cgroup v2 nothing is known.
//!
//! | file | of | meaning |
//! |---|---|---|
//! | `memory.events`, `oom_kill` | the VMM's cgroup | the VMM was killed, at any cgroup's limit |
//! | `memory.events.local`, `oom` | the same cgroup and those above | this cgroup's limit was reached |

use std::fs;
use std::path::Path;

use super::cgroup;

/// Says how the kernel killed the VMM, if it did: which cgroup reached which limit.
pub(crate) fn oom_kill(root: &Path, parent: &str, pod_id: &str) -> Option<String> {
    let levels = cgroup::levels(root, parent, pod_id);
    let own = levels.first().filter(|own| own.is_dir())?;
    // A cgroup without the controller is accounted by the one above. Only the pod's VMM runs there.
    let accounted = if own.join("memory.events").exists() { own } else { levels.get(1)? };
    if count(&accounted.join("memory.events"), "oom_kill") == 0 {
        return None;
    }
    let reached = levels.iter().find(|level| count(&level.join("memory.events.local"), "oom") > 0);
    let why = match reached {
        Some(level) => {
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
        let root = tempfile::tempdir().unwrap();
        let pod = root.path().join("kubepods/pod1");
        write(root.path(), &[("cgroup.controllers", "memory")]);
        write(&pod, &[("memory.events.local", "oom 2\noom_kill 0\n"), ("memory.max", "67108864\n")]);
        let own = pod.join("podvisor-ab");
        assert_eq!(oom_kill(root.path(), "/kubepods/pod1", "ab"), None, "its cgroup is gone");
        write(&own, &[("memory.events", "oom 0\noom_kill 0\n"), ("memory.events.local", "oom 0\n")]);
        assert_eq!(oom_kill(root.path(), "/kubepods/pod1", "ab"), None);
        write(&own, &[("memory.events", "oom 0\noom_kill 1\noom_group_kill 0\n")]);
        let text = oom_kill(root.path(), "/kubepods/pod1", "ab").unwrap();
        assert!(text.ends_with("the cgroup /kubepods/pod1 reached its limit of 64 MiB"), "{text}");
        write(&pod, &[("memory.events.local", "oom 0\n")]);
        let text = oom_kill(root.path(), "/kubepods/pod1", "ab").unwrap();
        assert!(text.ends_with("the node itself had none left"), "{text}");
    }

    #[test]
    fn where_the_vmms_cgroup_does_not_account_the_one_above_is_read() {
        let root = tempfile::tempdir().unwrap();
        let slice = root.path().join("test.slice");
        write(root.path(), &[("cgroup.controllers", "memory")]);
        let events = "oom 1\noom_kill 1\n";
        write(&slice, &[("memory.events", events), ("memory.events.local", events), ("memory.max", "max\n")]);
        assert_eq!(oom_kill(root.path(), "test.slice", "ab"), None);
        write(&slice.join("podvisor-ab.scope"), &[]);
        let text = oom_kill(root.path(), "test.slice", "ab").unwrap();
        assert!(text.ends_with("the cgroup /test.slice reached its limit"), "{text}");
    }

    #[test]
    fn a_node_with_the_first_version_of_cgroups_says_nothing() {
        let root = tempfile::tempdir().unwrap();
        write(&root.path().join("memory/podvisor/podvisor-ab"), &[("memory.events", "oom_kill 1\n")]);
        assert_eq!(oom_kill(root.path(), "", "ab"), None);
    }
}
