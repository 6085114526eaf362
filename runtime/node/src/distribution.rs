//! Distributions whose one process starts a containerd and the kubelet: k3s, RKE2 and k0s. The switch gives
//! their kubelet one more argument, by a file beside theirs. Their containerd goes on with its pods, behind
//! Podvisor. Nothing here changes a file.
//!
//! k3s and RKE2 read `config.yaml`, then the files of `config.yaml.d` in the order of their names. A key of a
//! later file replaces that of an earlier one, and a key with a `+` behind it is added to it
//! (docs.k3s.io, "Configuration File"). A `kubelet-arg` wins over the endpoint that the distribution itself
//! gives its kubelet (k3s, `pkg/util/args.go`).

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::processes::{self, ProcessesError};
use crate::root::{HostRoot, RootError};
use crate::started::Started;

/// A configuration of a distribution has a few dozen lines.
const BYTES_MAX: u64 = 1 << 20;

/// The argument of a kubelet, as `kubelet-arg` has it: without hyphens.
pub(crate) const ARGUMENT: &str = "container-runtime-endpoint";

/// The argument of k0s with the kubelet's own. Only the last one counts.
pub(crate) const EXTRA_ARGUMENTS: &str = "--kubelet-extra-args";

/// A distribution.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Distribution {
    /// Its units with a kubelet.
    pub(crate) units: [&'static str; 2],
    /// Its processes with a kubelet inside. Empty if the kubelet is a process of its own.
    processes: &'static [&'static str],
    /// The socket of its containerd.
    pub(crate) containerd: &'static str,
    /// The directory of `config.yaml` and `config.yaml.d`; `None` if arguments are all there is.
    configuration: Option<&'static str>,
    /// The variable with the path of another file than `config.yaml`, which has another directory beside it.
    configuration_variable: &'static str,
    /// Its data directory with the settings of its containerd; `None` if these are in `/etc`.
    data: Option<DataDirectory>,
}

/// A directory that a distribution fills.
#[derive(Debug, PartialEq, Eq)]
struct DataDirectory {
    /// The usual one, unless `data-dir` names another one.
    usual: &'static str,
    /// The variable with another one.
    variable: &'static str,
    /// Its own places of CNI configurations and plugins.
    cni: Option<OwnNetwork>,
}

/// The places of a network that a distribution has in its data directory.
#[derive(Debug, PartialEq, Eq)]
struct OwnNetwork {
    /// Directory of configurations in it.
    configurations: &'static str,
    /// Directories of plugins in it; that of the present releases first.
    plugins: [&'static str; 2],
}

/// The arguments with the file of the configuration. The environment wins over them (k3s,
/// `pkg/configfilearg/parser.go`).
const CONFIGURATION_ARGUMENTS: [&str; 2] = ["--config", "-c"];

/// The arguments with the data directory. They win over the files, and the files over the environment.
const DATA_ARGUMENTS: [&str; 2] = ["--data-dir", "-d"];

/// The directory of mirrors in the data directory (k3s, `pkg/agent/config/config.go`).
const MIRRORS: &str = "agent/etc/containerd/certs.d";

/// The argument with one of the kubelet's.
const KUBELET_ARGUMENT: &str = "--kubelet-arg";

/// The argument with the distribution's own endpoint for its kubelet.
const OWN_ENDPOINT: &str = "--container-runtime-endpoint";

const K3S: Distribution = Distribution {
    units: ["k3s.service", "k3s-agent.service"],
    processes: &["k3s-server", "k3s-agent"],
    containerd: "/run/k3s/containerd/containerd.sock",
    configuration: Some("/etc/rancher/k3s"),
    configuration_variable: "K3S_CONFIG_FILE",
    data: Some(DataDirectory {
        usual: "/var/lib/rancher/k3s",
        variable: "K3S_DATA_DIR",
        cni: Some(OwnNetwork {
            configurations: "agent/etc/cni/net.d",
            plugins: ["data/cni", "data/current/bin"],
        }),
    }),
};

const RKE2: Distribution = Distribution {
    units: ["rke2-server.service", "rke2-agent.service"],
    processes: &[],
    containerd: "/run/k3s/containerd/containerd.sock",
    configuration: Some("/etc/rancher/rke2"),
    configuration_variable: "RKE2_CONFIG_FILE",
    data: Some(DataDirectory { usual: "/var/lib/rancher/rke2", variable: "RKE2_DATA_DIR", cni: None }),
};

const K0S: Distribution = Distribution {
    units: ["k0scontroller.service", "k0sworker.service"],
    processes: &[],
    containerd: "/run/k0s/containerd.sock",
    configuration: None,
    configuration_variable: "",
    data: None,
};

/// All of them.
pub(crate) static ALL: [Distribution; 3] = [K3S, RKE2, K0S];

/// The kubelet's endpoint, as a distribution has it in its files and its arguments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The endpoint that counts; `None` for the distribution's own.
    pub(crate) value: Option<String>,
    /// The last file with arguments of the kubelet.
    pub(crate) last_file: Option<PathBuf>,
}

impl Distribution {
    /// The distribution of a unit.
    pub(crate) fn of(unit: &str) -> Option<&'static Distribution> {
        ALL.iter().find(|distribution| distribution.units.contains(&unit))
    }

    /// The running distribution with a kubelet inside its own process.
    pub(crate) fn with_kubelet_inside(
        root: &HostRoot,
    ) -> Result<Option<&'static Distribution>, ProcessesError> {
        for distribution in &ALL {
            for name in distribution.processes {
                if !processes::of_node(root, name)?.is_empty() {
                    return Ok(Some(distribution));
                }
            }
        }
        Ok(None)
    }

    /// Whether the kubelet is a process of its own, started again by the distribution if it ends.
    pub(crate) fn has_kubelet_process(&self) -> bool {
        self.processes.is_empty()
    }

    /// The directory of files that override the configuration.
    pub(crate) fn overrides(&self) -> Option<PathBuf> {
        self.configuration.map(|directory| Path::new(directory).join("config.yaml.d"))
    }

    /// The argument or the variable by which it reads another configuration than the usual one.
    pub(crate) fn other_configuration(&self, started: &Started) -> Option<&'static str> {
        let usual = Path::new(self.configuration?).join("config.yaml");
        let variable = (self.configuration_variable, started.variable(self.configuration_variable));
        let arguments = CONFIGURATION_ARGUMENTS.map(|name| (name, started.argument(name)));
        let mut named = std::iter::once(variable).chain(arguments);
        let (by, file) = named.find_map(|(by, file)| Some((by, file?)))?;
        (Path::new(&file) != usual).then_some(by)
    }

    /// Its directories of CNI configurations and plugins, if it has a network of its own there.
    pub(crate) fn cni(
        &self,
        root: &HostRoot,
        started: &Started,
    ) -> Result<Option<(PathBuf, PathBuf)>, RootError> {
        let Some(network) = self.data.as_ref().and_then(|data| data.cni.as_ref()) else { return Ok(None) };
        let Some(data) = self.data(root, started)? else { return Ok(None) };
        let configurations = data.join(network.configurations);
        if root.names(&configurations)?.is_empty() {
            return Ok(None);
        }
        let [present, earlier] = network.plugins.map(|directory| data.join(directory));
        let plugins = if root.kind(&present)?.is_some() { present } else { earlier };
        Ok(Some((configurations, plugins)))
    }

    /// The directory in which it writes its containerd's mirrors of registries.
    pub(crate) fn mirrors(&self, root: &HostRoot, started: &Started) -> Result<Option<PathBuf>, RootError> {
        Ok(self.data(root, started)?.map(|data| data.join(MIRRORS)))
    }

    /// Its data directory.
    fn data(&self, root: &HostRoot, started: &Started) -> Result<Option<PathBuf>, RootError> {
        let Some(data) = &self.data else { return Ok(None) };
        let argument = DATA_ARGUMENTS.iter().find_map(|name| started.argument(name));
        let named = match argument {
            Some(named) => named,
            None => self
                .configured(root)?
                .into_iter()
                .filter_map(|(_, read)| read.data_dir)
                .next_back()
                .or_else(|| started.variable(data.variable))
                .unwrap_or_else(|| data.usual.to_owned()),
        };
        Ok(Some(named.into()))
    }

    /// Reads the kubelet's endpoint from the distribution's files and from its start. Arguments of the start
    /// come after those of the files (k3s, `pkg/configfilearg/parser.go`).
    pub(crate) fn endpoint(&self, root: &HostRoot, started: &Started) -> Result<Endpoint, RootError> {
        let (mut arguments, mut own, mut last_file) = (Vec::new(), None, None);
        for (path, read) in self.configured(root)? {
            if read.kubelet_arg.is_some() || read.more_kubelet_arg.is_some() {
                last_file = Some(path);
            }
            if let Some(replacing) = read.kubelet_arg {
                arguments = replacing.into();
            }
            arguments.extend(read.more_kubelet_arg.map(Vec::from).unwrap_or_default());
            own = read.container_runtime_endpoint.or(own);
        }
        arguments.extend(started.arguments(KUBELET_ARGUMENT));
        own = started.argument(OWN_ENDPOINT).or(own);
        let named = |argument: &String| {
            let (name, value) = argument.trim_start_matches("--").split_once('=')?;
            (name == ARGUMENT).then(|| value.to_owned())
        };
        Ok(Endpoint { value: arguments.iter().rev().find_map(named).or(own), last_file })
    }

    /// The configuration's files with their contents, in the order in which they are read.
    fn configured(&self, root: &HostRoot) -> Result<Vec<(PathBuf, Configuration)>, RootError> {
        let mut configured = Vec::new();
        for path in self.files(root)? {
            let text = root.read(&path, BYTES_MAX)?.unwrap_or_default();
            // The distribution itself does not start with an unreadable file.
            if let Ok(read) = serde_saphyr::from_str::<Configuration>(&text) {
                configured.push((path, read));
            }
        }
        Ok(configured)
    }

    /// The files of the configuration, in the order in which they are read.
    fn files(&self, root: &HostRoot) -> Result<Vec<PathBuf>, RootError> {
        let (Some(directory), Some(overrides)) = (self.configuration, self.overrides()) else {
            return Ok(Vec::new());
        };
        let mut names = root.names(&overrides)?;
        names.retain(|name| name.ends_with(".yaml") || name.ends_with(".yml"));
        names.sort();
        let own = Path::new(directory).join("config.yaml");
        Ok(std::iter::once(own).chain(names.iter().map(|name| overrides.join(name))).collect())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Configuration {
    data_dir: Option<String>,
    container_runtime_endpoint: Option<String>,
    kubelet_arg: Option<Arguments>,
    #[serde(rename = "kubelet-arg+")]
    more_kubelet_arg: Option<Arguments>,
}

/// A list, or its only element.
#[derive(Deserialize)]
#[serde(untagged)]
enum Arguments {
    One(String),
    Several(Vec<String>),
}

impl From<Arguments> for Vec<String> {
    fn from(arguments: Arguments) -> Self {
        match arguments {
            Arguments::One(argument) => vec![argument],
            Arguments::Several(arguments) => arguments,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_daemon_starts_before_every_unit_with_a_kubelet() {
        let unit = include_str!("../../../dist/podvisor.service");
        let before = unit.lines().find_map(|line| line.strip_prefix("Before=")).unwrap();
        let ordered: Vec<_> = before.split(' ').collect();
        let missing: Vec<_> =
            ALL.iter().flat_map(|one| one.units).filter(|unit| !ordered.contains(unit)).collect();
        assert!(missing.is_empty() && ordered.contains(&"kubelet.service"), "{missing:?}");
    }

    /// The endpoint of k3s by these files, with a name each.
    fn endpoint(files: &[(&str, &str)]) -> (Option<String>, Option<String>) {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join("etc/rancher/k3s").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = HostRoot::open(directory.path()).unwrap();
        let found = K3S.endpoint(&root, &Started::default()).unwrap();
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        (found.value, found.last_file.map(name))
    }

    #[test]
    fn an_argument_of_the_kubelet_wins_over_the_distributions_own_endpoint() {
        assert_eq!(endpoint(&[]), (None, None));
        let own = ("config.yaml", "container-runtime-endpoint: unix:///own\nkubelet-arg: max-pods=200\n");
        assert_eq!(endpoint(&[own]).0.as_deref(), Some("unix:///own"));
        let more = ("config.yaml.d/90.yaml", "kubelet-arg+:\n  - container-runtime-endpoint=unix:///b\n");
        assert_eq!(endpoint(&[own, more]).0.as_deref(), Some("unix:///b"));
        let hyphens = ("config.yaml.d/90.yaml", "kubelet-arg: --container-runtime-endpoint=unix:///c\n");
        assert_eq!(endpoint(&[own, hyphens]).0.as_deref(), Some("unix:///c"));
    }

    #[test]
    fn a_later_file_replaces_the_arguments_unless_it_adds_to_them() {
        let ours = ("config.yaml.d/90.yaml", "kubelet-arg+: [container-runtime-endpoint=unix:///b]\n");
        let replacing = ("config.yaml.d/95.yml", "kubelet-arg:\n  - max-pods=200\n");
        assert_eq!(endpoint(&[ours, replacing]), (None, Some("95.yml".into())));
        let adding = ("config.yaml.d/95.yml", "kubelet-arg+:\n  - max-pods=200\n");
        assert_eq!(endpoint(&[ours, adding]), (Some("unix:///b".into()), Some("95.yml".into())));
        let note = ("config.yaml.d/99.txt", "kubelet-arg: x\n");
        assert_eq!(endpoint(&[ours, note]), (Some("unix:///b".into()), Some("90.yaml".into())));
        let broken = ("config.yaml.d/99.yaml", "{");
        assert_eq!(endpoint(&[ours, broken]).0.as_deref(), Some("unix:///b"));
    }
}
