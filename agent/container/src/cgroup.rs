//! A container's cgroup (v2): its processes, its end, and the kernel's counts. This module creates no cgroup;
//! [`crate::builder`] does. Limits are in [`crate::limits`].
//!
//! Files: Documentation/admin-guide/cgroup-v2.rst of the kernel.

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::syscall;

/// Where cgroup v2 is mounted.
pub const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Most cgroups read below a container's own. A container with more harms only itself.
const DESCENDANTS_MAX: usize = 4096;

/// One cgroup directory. A directory that does not exist, or no longer exists, is an empty cgroup.
#[derive(Clone, Debug)]
pub struct Cgroup {
    directory: PathBuf,
}

impl Cgroup {
    /// The cgroup with this path below the mount, such as `/pod/c1`.
    pub fn new(path: &str) -> Cgroup {
        Cgroup { directory: Path::new(CGROUP_ROOT).join(path.trim_start_matches('/')) }
    }

    /// Uses any directory as a cgroup's.
    #[cfg(test)]
    pub(crate) fn at(directory: &Path) -> Cgroup {
        Cgroup { directory: directory.to_owned() }
    }

    /// The cgroup's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Kills every process of the cgroup and of those below. The processes are gone once they are reaped.
    pub fn kill(&self) -> io::Result<()> {
        absent_is_fine(fs::write(self.directory.join("cgroup.kill"), "1"))
    }

    /// Signals every process of the cgroup and of those below, once. It may miss processes that fork
    /// meanwhile; for SIGKILL, [`kill`](Self::kill) misses none.
    pub fn signal(&self, signal: u32) -> io::Result<()> {
        for pid in self.processes()? {
            match syscall::kill(pid, signal) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Signals the leader, its descendants in the cgroup, and the cgroup's processes of the leader's session.
    /// Repeats SIGKILL until no such process is left, because processes may fork meanwhile. Returns the
    /// processes signalled last; after SIGKILL these are the ones still alive.
    pub fn signal_tree(&self, leader: i32, signal: u32) -> io::Result<Vec<i32>> {
        const ROUNDS_MAX: usize = 32;
        let mut tree = Vec::new();
        for _ in 0..ROUNDS_MAX {
            tree = tree_of(leader, &self.processes()?);
            for pid in &tree {
                match syscall::kill(*pid, signal) {
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    other => other?,
                }
            }
            if tree.is_empty() || signal != libc::SIGKILL.unsigned_abs() {
                break;
            }
        }
        Ok(tree)
    }

    /// Ids of the processes in the cgroup and in those below.
    pub fn processes(&self) -> io::Result<Vec<i32>> {
        let mut pids = Vec::new();
        for directory in self.tree()? {
            match fs::read_to_string(directory.join("cgroup.procs")) {
                // Zero stands for a process of another PID namespace.
                Ok(text) => {
                    pids.extend(text.lines().filter_map(|pid| pid.parse::<i32>().ok()).filter(|p| *p > 0));
                }
                // ENODEV: removed under us. EOPNOTSUPP: threaded, its processes are listed above it.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP)) => {}
                Err(error) => absent_is_fine(Err(error))?,
            }
        }
        Ok(pids)
    }

    /// Returns true if a process is left in the cgroup or below.
    pub fn populated(&self) -> io::Result<bool> {
        match fs::read_to_string(self.directory.join("cgroup.events")) {
            Ok(text) => Ok(value(&text, "populated") == 1),
            Err(error) => absent_is_fine(Err(error)).map(|()| false),
        }
    }

    /// Number of processes of the cgroup and of those below killed by the kernel for lack of memory.
    pub fn oom_kills(&self) -> u64 {
        let events = fs::read_to_string(self.directory.join("memory.events")).unwrap_or_default();
        value(&events, "oom_kill")
    }

    /// Removes the cgroup and all below. Fails with `EBUSY` while a process is left.
    pub fn remove(&self) -> io::Result<()> {
        for directory in self.tree()?.iter().rev() {
            absent_is_fine(fs::remove_dir(directory))?;
        }
        Ok(())
    }

    /// The cgroup's directory and those below, parents first.
    fn tree(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = vec![self.directory.clone()];
        let mut next = 0;
        while next < found.len() && found.len() < DESCENDANTS_MAX {
            let entries = match fs::read_dir(&found[next]) {
                Ok(entries) => entries,
                Err(error) => {
                    absent_is_fine(Err(error))?;
                    next += 1;
                    continue;
                }
            };
            for entry in entries {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    found.push(entry.path());
                }
            }
            next += 1;
        }
        Ok(found)
    }
}

/// Cgroup for a further process of a container, as a path below the mount. Normally it is the container's
/// own. If the container delegates controllers to cgroups below, it is the cgroup of the container's first
/// process, because the kernel accepts no process in a delegating cgroup ("No Internal Process Constraint").
pub(crate) fn to_join(container: &Path, first: i32) -> PathBuf {
    let own = Cgroup::new(&container.to_string_lossy());
    let handed_down = fs::read_to_string(own.directory.join("cgroup.subtree_control")).unwrap_or_default();
    let of_first = fs::read_to_string(format!("/proc/{first}/cgroup")).unwrap_or_default();
    join_among(container, &handed_down, &of_first)
}

/// Chooses by `cgroup.subtree_control` of the container's cgroup and by /proc/PID/cgroup of its first
/// process. A path outside the container's cgroup is ignored.
fn join_among(container: &Path, handed_down: &str, of_first: &str) -> PathBuf {
    let path = of_first.lines().find_map(|line| line.strip_prefix("0::")).map(Path::new);
    let below = path.filter(|path| !handed_down.trim().is_empty() && path.starts_with(container));
    below.unwrap_or(container).to_owned()
}

/// The value of `key` in a flat-keyed file, 0 when absent.
fn value(text: &str, key: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Selects from `pids` the leader, its living descendants, and the living processes of its session.
fn tree_of(leader: i32, pids: &[i32]) -> Vec<i32> {
    let stats: HashMap<i32, Stat> = pids.iter().filter_map(|pid| Some((*pid, Stat::of(*pid)?))).collect();
    let belongs = |mut pid: i32| {
        // A chain of parents is at most as long as the number of processes.
        for _ in 0..=stats.len() {
            if pid == leader {
                return true;
            }
            match stats.get(&pid) {
                Some(stat) if stat.session == leader => return true,
                Some(stat) => pid = stat.parent,
                None => return false,
            }
        }
        false
    };
    stats.iter().filter(|(pid, stat)| !stat.dead && belongs(**pid)).map(|(pid, _)| *pid).collect()
}

/// A process's entry in /proc/PID/stat (proc(5)).
struct Stat {
    dead: bool,
    parent: i32,
    session: i32,
}

impl Stat {
    fn of(pid: i32) -> Option<Stat> {
        // A name is cut at 15 bytes, also in the middle of a letter.
        Stat::parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
    }

    /// The process's name may hold any characters, even brackets. Parsing therefore starts behind the last
    /// bracket.
    fn parse(text: &str) -> Option<Stat> {
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        let dead = matches!(fields.next()?, "Z" | "X" | "x");
        let parent = fields.next()?.parse().ok()?;
        let session = fields.nth(1)?.parse().ok()?;
        Some(Stat { dead, parent, session })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "low 0\noom 3\noom_kill 2\noom_group_kill 9\n";
        assert_eq!(value(text, "oom_kill"), 2);
        assert_eq!(value(text, "oom_ki"), 0);
    }

    #[test]
    fn a_process_joins_the_first_one_where_the_container_hands_controllers_down() {
        let join = |handed_down, of_first| join_among(Path::new("/pod/c1"), handed_down, of_first);
        assert_eq!(join("\n", "0::/pod/c1/init.scope\n"), Path::new("/pod/c1"));
        assert_eq!(join("cpu memory\n", "0::/pod/c1/init.scope\n"), Path::new("/pod/c1/init.scope"));
        // Ended, or not of the container.
        for other in ["", "0::/pod/c2/init.scope\n", "0::/pod/c10\n", "1:cpu:/pod/c1/x\n"] {
            assert_eq!(join("cpu\n", other), Path::new("/pod/c1"), "{other:?}");
        }
    }

    #[test]
    fn a_cgroup_that_is_gone_is_empty() {
        let gone = Cgroup::new("/podvisor-test-no-such-cgroup");
        gone.kill().unwrap();
        gone.remove().unwrap();
        assert!(gone.processes().unwrap().is_empty());
        assert!(!gone.populated().unwrap());
        assert_eq!(gone.oom_kills(), 0);
    }

    #[test]
    fn a_process_s_name_does_not_confuse_its_stat() {
        let stat = Stat::parse("42 (a) b) Z 7 42 9 0 -1").unwrap();
        assert!(stat.dead);
        assert_eq!((stat.parent, stat.session), (7, 9));
        assert!(Stat::parse("42 (a").is_none());
    }

    #[test]
    fn a_tree_has_children_and_not_their_parents() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (ours, theirs) = (i32::try_from(std::process::id()).unwrap(), i32::try_from(child.id()).unwrap());
        let mut tree = tree_of(ours, &[1, ours, theirs]);
        tree.retain(|pid| *pid != 1);
        tree.sort_unstable();
        let mut both = [ours, theirs];
        both.sort_unstable();
        assert_eq!(tree, both);
        assert_eq!(tree_of(theirs, &[1, ours, theirs]), [theirs]);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_is_in_its_tree_whatever_its_name() {
        let dir = tempfile::tempdir().unwrap();
        // 15 bytes of it end in the middle of a letter.
        let program = dir.path().join("проверка.sh");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(program).arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // The parent may go on before the kernel has put the new name to the child (`begin_new_exec`).
        while fs::read(format!("/proc/{pid}/comm")).unwrap().is_ascii() {
            std::thread::yield_now();
        }
        let tree = tree_of(pid, &[pid]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(tree, [pid]);
    }
}
