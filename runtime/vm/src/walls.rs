//! The walls around a VMM that the node's kernel lends. They are the parts of the VMM's jail and its
//! cgroup. They are looked for in the kernel's own files. The jail itself sees to it that a VMM stands
//! behind its walls. A missing wall is reported here, and never judged.

use std::fs;
use std::path::Path;

/// A wall, and whether the node has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wall {
    /// Name in metrics and errors.
    pub name: &'static str,
    /// The finding, or the reason for the missing wall, for people.
    pub found: Result<String, String>,
}

/// The active security modules of the kernel, with commas between
/// (Documentation/admin-guide/LSM/index.rst).
const SECURITY_MODULES: &str = "sys/kernel/security/lsm";

/// The answers of a seccomp filter, with spaces between (Documentation/userspace-api/seccomp_filter.rst).
const SECCOMP_ACTIONS: &str = "proc/sys/kernel/seccomp/actions_avail";

/// The kernel's namespaces, by name (namespaces(7)).
const NAMESPACES: &str = "proc/self/ns";

/// The controllers of cgroup v2, with spaces between (cgroups(7)).
const CONTROLLERS: &str = "sys/fs/cgroup/cgroup.controllers";

/// The namespaces of a VMM and its share.
const NAMESPACES_NEEDED: [&str; 4] = ["mnt", "net", "ipc", "pid"];

/// The controllers for bounding a VMM.
const CONTROLLERS_NEEDED: [&str; 3] = ["cpu", "memory", "pids"];

/// Looks for all walls on this node. It reads a few files of the kernel.
pub fn walls() -> Vec<Wall> {
    below(Path::new("/"))
}

fn below(root: &Path) -> Vec<Wall> {
    vec![
        Wall { name: "landlock", found: listed(root, SECURITY_MODULES, ',', &["landlock"]) },
        Wall { name: "seccomp", found: listed(root, SECCOMP_ACTIONS, ' ', &["kill_process", "errno"]) },
        Wall { name: "namespaces", found: namespaces(root) },
        Wall { name: "cgroups", found: listed(root, CONTROLLERS, ' ', &CONTROLLERS_NEEDED) },
    ]
}

/// Returns the list in a file of the kernel if it has all that is needed, and names the first missing one
/// if not.
fn listed(root: &Path, file: &str, separator: char, needed: &[&str]) -> Result<String, String> {
    let text = fs::read_to_string(root.join(file)).map_err(|error| format!("/{file}: {error}"))?;
    let text = text.trim();
    let has = |name: &&str| text.split(separator).any(|listed| listed == *name);
    match needed.iter().find(|name| !has(name)) {
        None => Ok(needed.join(", ")),
        Some(missing) => Err(format!("no {missing} in /{file}, which has {text:?}")),
    }
}

fn namespaces(root: &Path) -> Result<String, String> {
    let directory = root.join(NAMESPACES);
    match NAMESPACES_NEEDED.iter().find(|name| directory.join(name).symlink_metadata().is_err()) {
        None => Ok(NAMESPACES_NEEDED.join(", ")),
        Some(missing) => Err(format!("no {missing} in /{NAMESPACES}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node with all walls.
    fn node() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let files = [
            (SECURITY_MODULES, "lockdown,capability,landlock,yama\n"),
            (SECCOMP_ACTIONS, "kill_process kill_thread trap errno user_notif trace log allow\n"),
            (CONTROLLERS, "cpuset cpu io memory pids\n"),
            ("proc/self/ns/mnt", ""),
            ("proc/self/ns/net", ""),
            ("proc/self/ns/ipc", ""),
            ("proc/self/ns/pid", ""),
        ];
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn missing(root: &Path) -> Vec<(&'static str, String)> {
        below(root).into_iter().filter_map(|wall| Some((wall.name, wall.found.err()?))).collect()
    }

    #[test]
    fn a_node_with_all_walls_lacks_none() {
        assert_eq!(missing(node().path()), []);
    }

    #[test]
    fn each_wall_that_the_kernel_lacks_is_named_with_what_it_has() {
        for (file, text, name, why) in [
            (SECURITY_MODULES, "capability,yama,landlocked\n", "landlock", "no landlock in"),
            (SECCOMP_ACTIONS, "kill_thread trap errno\n", "seccomp", "no kill_process in"),
            (CONTROLLERS, "cpuset cpu io memory\n", "cgroups", "no pids in"),
        ] {
            let node = node();
            fs::write(node.path().join(file), text).unwrap();
            let [(found, said)] = &missing(node.path())[..] else { panic!("{file}") };
            assert!(*found == name && said.contains(why) && said.contains(text.trim()), "{said}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_a_wall_that_is_not_there() {
        let names: Vec<_> = missing(Path::new("/nonexistent"))
            .into_iter()
            .map(|(name, why)| (name, why.is_empty()))
            .collect();
        let all = [("landlock", false), ("seccomp", false), ("namespaces", false), ("cgroups", false)];
        assert_eq!(names, all);
        let node = node();
        fs::remove_file(node.path().join("proc/self/ns/ipc")).unwrap();
        assert_eq!(missing(node.path()), [("namespaces", "no ipc in /proc/self/ns".to_owned())]);
    }
}
