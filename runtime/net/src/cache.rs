//! Records the configuration and the result of each pod's ADD. DEL then undoes the same ADD, even if the
//! daemon restarted or the configuration changed. Owns one JSON file per pod and interface; runs nothing.
//!
//! The file is written before the first plugin runs, so an interrupted setup can be undone.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use runtime_fail_points::{Point, pass};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    NetError, PodNetworkSpec,
    config::{self, NetworkList},
    trace::{self, NetworkTrace},
};

/// One pod's ADD: the plugins' input and their answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// The configuration at the time.
    pub(crate) list: NetworkList,
    /// The pod's spec at the time.
    pub(crate) spec: PodNetworkSpec,
    /// The last plugin's answer; `Null` until all plugins have succeeded.
    pub(crate) result: Value,
    /// Interfaces that took the frames of all groups before the pod had them. Entries of earlier versions
    /// name none.
    pub(crate) all_groups: Vec<String>,
}

impl Entry {
    /// An ADD without an end yet.
    pub(crate) fn begun(list: NetworkList, spec: PodNetworkSpec) -> Entry {
        Entry { list, spec, result: Value::Null, all_groups: Vec::new() }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OnDisk {
    file: PathBuf,
    network: Network,
    spec: PodNetworkSpec,
    #[serde(default)]
    result: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    all_groups: Vec<String>,
}

/// A network configuration list as CNI writes it, so that reading it back checks it again.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Network {
    cni_version: String,
    name: String,
    plugins: Vec<Map<String, Value>>,
}

/// The cache of one Podvisor node.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
    /// Where libcni records the attachments of other runtimes.
    of_libcni: PathBuf,
}

impl Cache {
    /// Creates a cache with its files in `<cache_dir>/podvisor`.
    pub(crate) fn new(cache_dir: &Path) -> Self {
        Self { dir: cache_dir.join("podvisor"), of_libcni: LIBCNI.into() }
    }

    fn path(&self, pod_id: &str, interface: &str) -> PathBuf {
        self.dir.join(format!("{pod_id}-{interface}.json"))
    }

    /// Writes the entry atomically, in place of the pod's old one.
    pub(crate) fn write(&self, interface: &str, entry: &Entry) -> Result<(), NetError> {
        let path = self.path(&entry.spec.pod_id, interface);
        let failed = |source| NetError::File { action: "write", path: path.clone(), source };
        let list = &entry.list;
        let on_disk = OnDisk {
            file: list.file.clone(),
            network: Network {
                cni_version: list.version.to_owned(),
                name: list.name.clone(),
                plugins: list.plugins.clone(),
            },
            spec: entry.spec.clone(),
            result: entry.result.clone(),
            all_groups: entry.all_groups.clone(),
        };
        let text = serde_json::to_vec(&on_disk).map_err(io::Error::from).map_err(failed)?;
        let draft = draft(&path);
        let write = || {
            pass(Point::CniCacheWrite)?;
            fs::create_dir_all(&self.dir)?;
            fs::write(&draft, text)?;
            pass(Point::CniCacheRename)?;
            fs::rename(&draft, &path)
        };
        write().map_err(failed)
    }

    /// Reads the pod's entry. Returns `None` if there is none. An unreadable entry is logged and also returns
    /// `None`: DEL then uses the current configuration instead of not running at all.
    pub(crate) fn read(&self, pod_id: &str, interface: &str) -> Result<Option<Entry>, NetError> {
        let path = self.path(pod_id, interface);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(NetError::File { action: "read", path, source }),
            Ok(text) => text,
        };
        match Self::parse(&text) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a cached CNI result cannot be read");
                Ok(None)
            }
        }
    }

    fn parse(text: &[u8]) -> Result<Entry, Box<dyn std::error::Error>> {
        let OnDisk { file, network, spec, result, all_groups } = serde_json::from_slice(text)?;
        let list = config::parse(&file, &serde_json::to_vec(&network)?)?;
        spec.check()?;
        Ok(Entry { list, spec, result, all_groups })
    }

    /// Returns whether the pod has an entry, readable or not.
    pub(crate) fn has(&self, pod_id: &str, interface: &str) -> bool {
        self.path(pod_id, interface).exists()
    }

    /// The files of all pods' entries, drafts included.
    pub(crate) fn traces(&self, interface: &str) -> Vec<NetworkTrace> {
        let entry = format!("-{interface}.json");
        trace::find(&self.dir, "", &[&entry, &format!("{entry}.new")])
    }

    /// Returns the live attachments to this network as pairs of container id and interface name. They are our
    /// own and those of any other libcni user on the node, such as another runtime. An unreadable entry
    /// counts for every network.
    ///
    /// # Errors
    /// A directory could not be read. The caller must then not clean up, because the list is incomplete.
    pub(crate) fn attachments(
        &self,
        interface: &str,
        network: &str,
    ) -> Result<Vec<(String, String)>, NetError> {
        let mut found = Vec::new();
        let end = format!("-{interface}.json");
        for name in names(&self.dir)? {
            let Some(pod_id) = name.strip_suffix(&format!("{end}.new")).or(name.strip_suffix(&end)) else {
                continue;
            };
            let attachment = (pod_id.to_owned(), interface.to_owned());
            let is_other = self.read(pod_id, interface)?.is_some_and(|entry| entry.list.name != network);
            if !is_other && !found.contains(&attachment) {
                found.push(attachment);
            }
        }
        for name in names(&self.of_libcni)? {
            let text = fs::read(self.of_libcni.join(&name)).unwrap_or_default();
            match serde_json::from_slice::<OfLibcni>(&text) {
                Ok(entry) if entry.network_name == network => found.push((entry.container_id, entry.if_name)),
                // The file's name holds the network, the container and the interface.
                Err(_) => found.extend(named(&name, network)),
                Ok(_) => {}
            }
        }
        Ok(found)
    }

    /// Removes the pod's entry, after any leftover of an interrupted write. Succeeds if there is none.
    pub(crate) fn remove(&self, pod_id: &str, interface: &str) -> Result<(), NetError> {
        let entry = self.path(pod_id, interface);
        for path in [draft(&entry), entry] {
            match pass(Point::CniCacheRemove).and_then(|()| fs::remove_file(&path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(NetError::File { action: "remove", path, source: error });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// libcni's directory of cached attachments (`CacheDir` of its `api.go`).
const LIBCNI: &str = "/var/lib/cni/results";

/// The part of libcni's cached attachment used here (`cachedInfo` of its `api.go`).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfLibcni {
    container_id: String,
    if_name: String,
    network_name: String,
}

/// Parses an attachment to this network from the name of a libcni file.
fn named(file: &str, network: &str) -> Option<(String, String)> {
    let (id, interface) = file.strip_prefix(network)?.strip_prefix('-')?.rsplit_once('-')?;
    Some((id.to_owned(), interface.to_owned()))
}

/// Names of a directory's files. An absent directory has none.
fn names(dir: &Path) -> Result<Vec<String>, NetError> {
    let failed = |source| NetError::File { action: "read", path: dir.to_owned(), source };
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    let mut names = entries.map(name).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    names.sort();
    Ok(names)
}

/// The temporary name for writing an entry before it is renamed.
fn draft(entry: &Path) -> PathBuf {
    entry.with_extension("json.new")
}

#[cfg(test)]
mod tests {
    use runtime_spec::PortMapping;
    use serde_json::json;

    use super::*;

    fn entry() -> Entry {
        let text = br#"{"cniVersion":"0.4.0","name":"net","plugins":[{"type":"bridge","mtu":9}]}"#;
        let list = config::parse(Path::new("/etc/cni/net.d/10-net.conflist"), text).unwrap();
        let spec = PodNetworkSpec { pod_id: "p1".into(), ..Default::default() };
        Entry { list, spec, result: json!({"ips": []}), all_groups: vec!["eth0".into()] }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        cache.write("eth0", &entry()).unwrap();
        assert_eq!(cache.read("p1", "eth0").unwrap(), Some(entry()));
        assert!(dir.path().join("podvisor/p1-eth0.json").exists());
        // The leftover of a daemon killed during a write.
        fs::write(dir.path().join("podvisor/p1-eth0.json.new"), "{").unwrap();
        assert_eq!(cache.traces("eth0").len(), 2);
        cache.remove("p1", "eth0").unwrap();
        cache.remove("p1", "eth0").unwrap();
        assert_eq!(cache.read("p1", "eth0").unwrap(), None);
        assert_eq!(cache.traces("eth0"), []);
    }

    #[test]
    fn a_file_of_an_earlier_version_is_read_where_a_port_has_no_address_of_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        let port = PortMapping { host_port: 80, container_port: 8080, ..PortMapping::default() };
        let mut entry = entry();
        entry.spec.port_mappings = vec![port];
        cache.write("eth0", &entry).unwrap();
        let path = dir.path().join("podvisor/p1-eth0.json");
        let text = fs::read_to_string(&path).unwrap();
        let earlier = text.replace(r#""host_ip":"""#, r#""host_ip":null"#);
        assert_ne!(earlier, text);
        fs::write(&path, earlier).unwrap();
        assert_eq!(cache.read("p1", "eth0").unwrap(), Some(entry));
    }

    #[test]
    fn what_a_write_that_was_cut_short_left_goes_with_the_entry() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        cache.write("eth0", &entry()).unwrap();
        let left = |cache: &Cache| fs::read_dir(&cache.dir).unwrap().count();
        // The leftover of a daemon killed before the rename.
        let text = fs::read(cache.path("p1", "eth0")).unwrap();
        fs::write(draft(&cache.path("p1", "eth0")), &text).unwrap();
        assert_eq!(left(&cache), 2);
        cache.remove("p1", "eth0").unwrap();
        assert_eq!(left(&cache), 0);
    }

    #[test]
    fn a_torn_file_counts_as_no_entry_but_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        cache.write("eth0", &entry()).unwrap();
        fs::write(dir.path().join("podvisor/p1-eth0.json"), "{\"file\":").unwrap();
        assert_eq!(cache.read("p1", "eth0").unwrap(), None);
        assert!(cache.has("p1", "eth0"));
    }

    #[test]
    fn attachments_are_ours_and_those_of_others_and_what_cannot_be_read_counts() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache { of_libcni: dir.path().join("results"), ..Cache::new(dir.path()) };
        assert_eq!(cache.attachments("eth0", "net").unwrap(), []);
        cache.write("eth0", &entry()).unwrap();
        let mut other = entry();
        (other.list.name, other.spec.pod_id) = ("other".into(), "p2".into());
        cache.write("eth0", &other).unwrap();
        fs::write(dir.path().join("podvisor/p3-eth0.json"), "{").unwrap();
        fs::write(dir.path().join("podvisor/p4-eth0.json.new"), "").unwrap();
        let results = dir.path().join("results");
        fs::create_dir(&results).unwrap();
        let of_libcni = |name: &str, network: &str| {
            let text = json!({"kind": "cniCacheV1", "containerId": "c1", "ifName": "eth0", "networkName": network, "config": "e30="});
            fs::write(results.join(name), text.to_string()).unwrap();
        };
        of_libcni("net-c1-eth0", "net");
        of_libcni("other-c1-eth0", "other");
        fs::write(results.join("net-c-2-net1"), "torn").unwrap();
        fs::write(results.join("other-c3-eth0"), "torn").unwrap();
        let found = cache.attachments("eth0", "net").unwrap();
        let shown: Vec<_> = found.iter().map(|(id, interface)| format!("{id} {interface}")).collect();
        assert_eq!(shown, ["p1 eth0", "p3 eth0", "p4 eth0", "c-2 net1", "c1 eth0"]);
        fs::write(dir.path().join("file"), "").unwrap();
        let unreadable = Cache { of_libcni: dir.path().join("file"), ..cache };
        assert!(unreadable.attachments("eth0", "net").is_err());
    }
}
