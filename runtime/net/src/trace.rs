//! Traces of pods' networks, found by file names. Owns the form of these names; removes nothing.

use std::fs;
use std::path::{Path, PathBuf};

/// A trace of a pod's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkTrace {
    /// The pod's id.
    pub pod_id: String,
    /// A namespace's mount, or the file of an ADD.
    pub path: PathBuf,
}

/// Finds the files in `dir` whose names are a pod's id between `prefix` and one of `suffixes`.
pub(crate) fn find(dir: &Path, prefix: &str, suffixes: &[&str]) -> Vec<NetworkTrace> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let trace = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let rest = name.to_str()?.strip_prefix(prefix)?;
        let pod_id = suffixes.iter().find_map(|suffix| rest.strip_suffix(suffix))?.to_owned();
        (!pod_id.is_empty()).then(|| NetworkTrace { pod_id, path: entry.path() })
    };
    let mut traces: Vec<_> = entries.filter_map(trace).collect();
    traces.sort_by(|one, other| one.path.cmp(&other.path));
    traces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_no_traces() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["podvisor-ab", "podvisor-", "cni-1", "ab-eth0.json", "cd-eth0.json.new", "ef-eth1.json"]
        {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let ids = |prefix, suffixes| {
            find(dir.path(), prefix, suffixes).into_iter().map(|trace| trace.pod_id).collect::<Vec<_>>()
        };
        assert_eq!(ids("podvisor-", &[""]), ["ab"]);
        assert_eq!(ids("", &["-eth0.json", "-eth0.json.new"]), ["ab", "cd"]);
        assert_eq!(find(&dir.path().join("none"), "", &[""]), []);
    }
}
