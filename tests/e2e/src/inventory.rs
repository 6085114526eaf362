//! All resources of a daemon on a node: traces of pods, files, records and the daemon's descriptors. If two
//! inventories are equal, nothing was left behind, and nothing lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use runtime_store::{Store, Table};

use crate::network::Network;
use crate::traces::Traces;
use crate::wait::{WITHIN, within};

/// The resources at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    traces: Traces,
    /// Files and directories of the state, the sockets, the network's leases and its cache.
    files: BTreeSet<String>,
    /// Keys of the store's tables.
    records: BTreeSet<String>,
    /// The daemon's descriptors: how many of each sort.
    descriptors: BTreeMap<String, usize>,
}

impl Inventory {
    /// Takes the inventory of the daemon with this process id and the directory `dir`.
    ///
    /// # Errors
    /// When something cannot be read.
    pub fn take(dir: &Path, network: &Network, daemon: u32) -> anyhow::Result<Inventory> {
        let mut files = BTreeSet::new();
        for root in [&dir.join("state"), &dir.join("run"), &dir.join("leases"), &network.cache_dir] {
            list(root, dir, &mut files);
        }
        Ok(Inventory {
            traces: Traces::take(dir)?,
            files,
            records: records(&dir.join("state/store.redb"))?,
            descriptors: descriptors(daemon)?,
        })
    }

    /// Waits until the node equals `before` again, and returns the remaining differences. A start with a
    /// frozen VM is given up after 120 s, and then undone.
    pub async fn settle(before: &Inventory, dir: &Path, network: &Network, daemon: u32) -> Vec<String> {
        let settled = within(WITHIN, async || match Inventory::take(dir, network, daemon) {
            Ok(now) if now == *before => Ok(()),
            Ok(now) => Err(now.differences(before)),
            // A file disappeared during the look.
            Err(error) => Err(vec![format!("{error:#}")]),
        });
        settled.await.err().unwrap_or_default()
    }

    /// One line for each new or missing thing.
    #[must_use]
    pub fn differences(&self, before: &Inventory) -> Vec<String> {
        let came = |what: String| format!("+ {what}");
        let went = |what: String| format!("- {what}");
        let mut lines: Vec<String> = self.traces.since(&before.traces).into_iter().map(came).collect();
        lines.extend(before.traces.since(&self.traces).into_iter().map(went));
        for (now, then) in [(&self.files, &before.files), (&self.records, &before.records)] {
            lines.extend(now.difference(then).cloned().map(came));
            lines.extend(then.difference(now).cloned().map(went));
        }
        let sorts: BTreeSet<_> = self.descriptors.keys().chain(before.descriptors.keys()).collect();
        for sort in sorts {
            let count = |of: &Inventory| of.descriptors.get(sort).copied().unwrap_or_default();
            if count(self) != count(before) {
                lines.push(format!("descriptors {sort}: {} became {}", count(before), count(self)));
            }
        }
        lines
    }
}

fn list(at: &Path, dir: &Path, found: &mut BTreeSet<String>) {
    let Ok(entries) = std::fs::read_dir(at) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = path.strip_prefix(dir).unwrap_or(&path).display().to_string();
        // Logs of removed pods are kept for a while.
        if name == "state/ended" {
            continue;
        }
        // A mount there is a trace. This does not descend into it.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !name.ends_with("/shared") {
            list(&path, dir, found);
        }
        found.insert(format!("file {name}"));
    }
}

/// Keys of all tables, read from a copy: the daemon has the store itself. While nothing is committed the copy
/// is whole.
fn records(store: &Path) -> anyhow::Result<BTreeSet<String>> {
    let copies = tempfile::tempdir()?;
    let copy = copies.path().join("store.redb");
    std::fs::copy(store, &copy).context("copying the store")?;
    let store = Store::open(&copy)?;
    let mut found = BTreeSet::new();
    for table in Table::ALL {
        let listing = store.list::<serde_json::Value>(table)?;
        found.extend(listing.values.iter().map(|(key, _)| format!("record {table:?} {key}")));
        found
            .extend(listing.unreadable.iter().map(|(key, error)| format!("record {table:?} {key}: {error}")));
    }
    Ok(found)
}

/// The daemon's descriptors by sort: `socket`, `pipe`, a file's path. Connections by TCP are left out: those
/// to a registry are kept for another call for a minute and a half.
fn descriptors(daemon: u32) -> anyhow::Result<BTreeMap<String, usize>> {
    let mut connections = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let text = std::fs::read_to_string(format!("/proc/{daemon}/net/{table}")).unwrap_or_default();
        // Field 10 is the inode (proc_pid_net(5)).
        let inodes = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(9));
        connections.extend(inodes.map(|inode| format!("socket:[{inode}]")));
    }
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{daemon}/fd")).context("the daemon is gone")?.flatten() {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let target = target.display().to_string();
        // The copy of the root image comes with the first VM, and stays for the next.
        if connections.contains(&target) || target.starts_with("/memfd:podvisor-root-image") {
            continue;
        }
        // Numbers of inodes differ each time, and each daemon has its own number.
        let sort = target.split(":[").next().unwrap_or_default();
        let sort = sort.replace(&format!("/proc/{daemon}/"), "/proc/self/");
        *found.entry(sort).or_default() += 1;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_and_what_went_are_both_differences() {
        let inventory = |file: &str, sockets| Inventory {
            files: [file.to_owned()].into(),
            descriptors: [("socket".to_owned(), sockets)].into(),
            ..Inventory::default()
        };
        let (before, after) = (inventory("file a", 1), inventory("file b", 2));
        let expected = ["+ file b", "- file a", "descriptors socket: 1 became 2"];
        assert_eq!(after.differences(&before), expected);
        assert_eq!(before.differences(&before), Vec::<String>::new());
    }

    #[test]
    fn records_are_read_beside_the_daemon_that_has_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.redb");
        let store = Store::open(&path).unwrap();
        store.commit(runtime_store::Batch::new().put(Table::PodRecords, "p1", &7).unwrap()).unwrap();
        assert_eq!(records(&path).unwrap(), ["record PodRecords p1".to_owned()].into());
    }
}
