//! The mirrors of registries that the other runtime has, for a new configuration. containerd's are
//! directories with a `hosts.toml`, and Podvisor reads the same form. CRI-O's `registries.conf` has another
//! one. Nothing here changes a file.

use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::kubelet::{self, Kubelet, KubeletError};
use crate::root::{HostRoot, RootError};

/// The directory of a configuration without `registries.config_dir`.
const OURS: &str = "/etc/podvisor/certs.d";

/// A configuration of containerd has a few hundred lines.
const BYTES_MAX: u64 = 1 << 20;

/// A containerd with its places.
struct Containerd {
    socket: &'static str,
    /// Its configuration; `None` if a distribution makes it from its own.
    configuration: Option<&'static str>,
    /// Directories of mirrors where the configuration names none.
    usual: &'static [&'static str],
}

/// All but those of k3s and RKE2, which have them in their data directory.
const KNOWN: [Containerd; 3] = [
    Containerd {
        socket: "/run/containerd/containerd.sock",
        configuration: Some("/etc/containerd/config.toml"),
        // The default of containerd 2.2.
        usual: &["/etc/containerd/certs.d", "/etc/docker/certs.d"],
    },
    Containerd {
        socket: "/run/k0s/containerd.sock",
        configuration: Some("/etc/k0s/containerd.toml"),
        usual: &[],
    },
    Containerd {
        socket: "/var/snap/microk8s/common/run/containerd.sock",
        configuration: None,
        usual: &["/var/snap/microk8s/current/args/certs.d"],
    },
];

/// Finds the directory with the mirrors of the runtime at `upstream`. `None` if it has none, or if Podvisor
/// has some of its own already.
pub(crate) fn mirrors(
    root: &HostRoot,
    host: &dyn Host,
    upstream: &Path,
) -> Result<Option<PathBuf>, KubeletError> {
    if has_files(root, Path::new(OURS)) {
        return Ok(None);
    }
    let upstream = kubelet::plain(upstream);
    let places = match KNOWN.iter().find(|one| Path::new(one.socket) == upstream) {
        Some(containerd) => containerd.places(root)?,
        None => of_distribution(root, host, &upstream)?.into_iter().collect(),
    };
    Ok(places.into_iter().find(|place| has_files(root, place)))
}

/// The directory that k3s and RKE2 fill from their `registries.yaml` at each start.
fn of_distribution(
    root: &HostRoot,
    host: &dyn Host,
    upstream: &Path,
) -> Result<Option<PathBuf>, KubeletError> {
    match Kubelet::find(host) {
        Ok(found @ Kubelet::Of { distribution, .. }) if Path::new(distribution.containerd) == upstream => {
            Ok(distribution.mirrors(root, &found.started(root, host)?)?)
        }
        Ok(_) | Err(KubeletError::Unknown) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a directory has files. One that cannot be read has no mirrors for anybody.
fn has_files(root: &HostRoot, directory: &Path) -> bool {
    root.names(directory).is_ok_and(|names| !names.is_empty())
}

impl Containerd {
    /// Directories of mirrors, the first one first.
    fn places(&self, root: &HostRoot) -> Result<Vec<PathBuf>, RootError> {
        let mut set = None;
        for file in self.files(root)? {
            let text = root.read(&file, BYTES_MAX)?.unwrap_or_default();
            set = config_path(&text).or(set);
        }
        Ok(match set {
            Some(list) => list.split(':').map(PathBuf::from).collect(),
            None => self.usual.iter().map(PathBuf::from).collect(),
        })
    }

    /// The configuration and its imports, in the order in which they are read. A pattern may have one `*`, in
    /// the name of the file.
    fn files(&self, root: &HostRoot) -> Result<Vec<PathBuf>, RootError> {
        let Some(own) = self.configuration.map(PathBuf::from) else { return Ok(Vec::new()) };
        let text = root.read(&own, BYTES_MAX)?.unwrap_or_default();
        let mut files = vec![own.clone()];
        for import in imports(&text) {
            let import = own.with_file_name(import);
            let (directory, pattern) = (import.parent(), import.file_name().and_then(|name| name.to_str()));
            let (Some(directory), Some(pattern)) = (directory, pattern) else { continue };
            let Some((head, tail)) = pattern.split_once('*') else {
                files.push(import.clone());
                continue;
            };
            let mut names = root.names(directory).unwrap_or_default();
            names.retain(|name| name.starts_with(head) && name.ends_with(tail));
            names.sort();
            files.extend(names.iter().map(|name| directory.join(name)));
        }
        Ok(files)
    }
}

/// The files or patterns that a configuration imports.
fn imports(text: &str) -> Vec<String> {
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    let listed = table.get("imports").and_then(toml::Value::as_array);
    listed.into_iter().flatten().filter_map(toml::Value::as_str).map(str::to_owned).collect()
}

/// The directories of mirrors in a configuration, by whichever name its version has for the plugin.
fn config_path(text: &str) -> Option<String> {
    let table: toml::Table = text.parse().ok()?;
    let plugins = table.get("plugins")?.as_table()?;
    let set = |plugin: &toml::Value| Some(plugin.get("registry")?.get("config_path")?.as_str()?.to_owned());
    plugins.values().filter_map(set).find(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_directories_of_mirrors_are_those_of_the_last_file_that_names_some() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let root = HostRoot::open(directory.path()).unwrap();
        let places = || KNOWN[0].places(&root).unwrap();
        assert_eq!(places(), [Path::new("/etc/containerd/certs.d"), Path::new("/etc/docker/certs.d")]);
        let own = "imports = [\"conf.d/*.toml\", \"/etc/other.toml\"]\n\
            [plugins.\"io.containerd.grpc.v1.cri\".registry]\nconfig_path = \"/a:/b\"\n";
        write("etc/containerd/config.toml", own);
        assert_eq!(places(), [Path::new("/a"), Path::new("/b")]);
        write(
            "etc/containerd/conf.d/20.toml",
            "[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '/c'\n",
        );
        write("etc/containerd/conf.d/30.txt", "[plugins.x.registry]\nconfig_path = '/d'\n");
        assert_eq!(places(), [Path::new("/c")]);
        write("etc/other.toml", "[plugins.cri.registry]\nconfig_path = ''\n");
        assert_eq!(places(), [Path::new("/c")], "an empty one is none");
        write("etc/other.toml", "[plugins.cri.registry]\nconfig_path = '/e'\n");
        assert_eq!(places(), [Path::new("/e")]);
    }
}
