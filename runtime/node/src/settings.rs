//! The daemon's configuration on the node: writes a new one, and reads from an existing one the places needed
//! for an installation. Only the daemon interprets the whole file.

use std::path::{Path, PathBuf};

use crate::payload::CONFIGURATION;
use crate::root::{HostRoot, RootError};

/// A configuration has a few hundred lines.
const BYTES_MAX: u64 = 1 << 20;

/// Pods without a handler's name for the other runtime, as in `upstream.unnamed_pods`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnnamedPods {
    /// All: a pod runs in a VM only if it asks for it.
    #[default]
    All,
    /// Pods in the node's namespaces.
    Node,
    /// None.
    None,
}

/// The node's other runtime, as a new configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upstream {
    /// The runtime's CRI socket on the node.
    pub(crate) socket: PathBuf,
    /// Names of its handlers, available to pods.
    pub(crate) handlers: Vec<String>,
    /// Pods sent there without a handler.
    pub(crate) unnamed_pods: UnnamedPods,
}

/// Places named in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The daemon's CRI socket.
    pub(crate) socket: PathBuf,
    /// Socket of the other runtime.
    pub(crate) upstream: Option<PathBuf>,
}

/// A failure to make or read a configuration.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The node's disk failed.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The file on the node is no TOML.
    #[error("{CONFIGURATION} on the node cannot be read")]
    Parse(#[source] Box<toml::de::Error>),
    /// The delivered configuration has no line for a key.
    #[error("the configuration to be installed has no line for {section}.{key}")]
    NoLine {
        /// The table.
        section: &'static str,
        /// The key in it.
        key: &'static str,
    },
}

impl Settings {
    /// Reads the node's configuration; `None` if there is none.
    pub(crate) fn read(root: &HostRoot) -> Result<Option<Settings>, SettingsError> {
        let text = root.read(Path::new(CONFIGURATION), BYTES_MAX)?;
        text.map(|text| Settings::parse(&text)).transpose()
    }

    fn parse(text: &str) -> Result<Settings, SettingsError> {
        let table: toml::Table = text.parse().map_err(|error| SettingsError::Parse(Box::new(error)))?;
        let path = |section: &str, key: &str| {
            table
                .get(section)
                .and_then(|section| section.get(key))
                .and_then(toml::Value::as_str)
                .map(PathBuf::from)
        };
        let run = path("paths", "run").unwrap_or_else(|| "/run/podvisor".into());
        let socket = path("paths", "socket").unwrap_or_else(|| run.join("podvisor.sock"));
        Ok(Settings { socket, upstream: path("upstream", "socket") })
    }
}

/// Returns the delivered configuration, completed with the other runtime.
pub(crate) fn with_upstream(example: &str, upstream: &Upstream) -> Result<String, SettingsError> {
    let unnamed = match upstream.unnamed_pods {
        UnnamedPods::All => "all",
        UnnamedPods::Node => "node",
        UnnamedPods::None => "none",
    };
    let handlers = upstream.handlers.iter().map(String::as_str).collect::<Vec<_>>();
    let text = set(example, "upstream", "socket", &upstream.socket.to_string_lossy().as_ref().into())?;
    let text = set(&text, "upstream", "handlers", &handlers.into())?;
    set(&text, "upstream", "unnamed_pods", &unnamed.into())
}

/// Returns a delivered configuration, completed with a distribution's network. The usual directories of
/// plugins stay behind its own.
pub(crate) fn with_cni(
    example: &str,
    configurations: &Path,
    plugins: &Path,
) -> Result<String, SettingsError> {
    let text = set(example, "cni", "conf_dir", &configurations.to_string_lossy().as_ref().into())?;
    let plugins = [&plugins.to_string_lossy(), "/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];
    set(&text, "cni", "bin_dirs", &plugins.to_vec().into())
}

/// Returns a delivered configuration, completed with the directory of another runtime's mirrors.
pub(crate) fn with_mirrors(example: &str, directory: &Path) -> Result<String, SettingsError> {
    set(example, "registries", "config_dir", &directory.to_string_lossy().as_ref().into())
}

/// Gives a commented key of a section a value. The section's header may be commented, too.
fn set(
    example: &str,
    section: &'static str,
    key: &'static str,
    value: &toml::Value,
) -> Result<String, SettingsError> {
    let no_line = || SettingsError::NoLine { section, key };
    let (head, commented) = (format!("[{section}]"), format!("#{key} ="));
    let uncommented = |line: &str| line.strip_prefix('#').unwrap_or(line).to_owned();
    let mut lines: Vec<String> = example.lines().map(str::to_owned).collect();
    let header = lines.iter().position(|line| uncommented(line) == head).ok_or_else(no_line)?;
    let mut behind = lines[header + 1..].iter().take_while(|line| !uncommented(line).starts_with('['));
    let place = behind.position(|line| line.starts_with(&commented)).ok_or_else(no_line)?;
    lines[header] = head;
    lines[header + 1 + place] = format!("{key} = {value}");
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../dist/config.toml");

    #[test]
    fn the_example_gets_the_other_runtime_and_stays_otherwise_as_it_is() {
        let upstream = Upstream {
            socket: "/run/crio/\"crio\".sock".into(),
            handlers: vec!["crun".into(), "nvidia".into()],
            unnamed_pods: UnnamedPods::All,
        };
        let text = with_upstream(EXAMPLE, &upstream).unwrap();
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["upstream"]["socket"].as_str(), Some("/run/crio/\"crio\".sock"));
        assert_eq!(table["upstream"]["handlers"].as_array().unwrap().len(), 2);
        assert_eq!(table["upstream"]["unnamed_pods"].as_str(), Some("all"));
        let changed = EXAMPLE.lines().zip(text.lines()).filter(|(before, after)| before != after).count();
        assert_eq!(
            (changed, EXAMPLE.lines().count()),
            (4, text.lines().count()),
            "three keys and their header"
        );
        let settings = Settings::parse(&text).unwrap();
        assert_eq!(settings.socket, Path::new("/run/podvisor/podvisor.sock"));
        assert_eq!(settings.upstream.as_deref(), Some(Path::new("/run/crio/\"crio\".sock")));
    }

    #[test]
    fn the_example_gets_the_network_of_a_distribution() {
        let text = with_cni(EXAMPLE, Path::new("/a/net.d"), Path::new("/a/bin")).unwrap();
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["cni"]["conf_dir"].as_str(), Some("/a/net.d"));
        let plugins = table["cni"]["bin_dirs"].as_array().unwrap();
        assert_eq!((plugins[0].as_str(), plugins.len()), (Some("/a/bin"), 4));
        let changed = EXAMPLE.lines().zip(text.lines()).filter(|(before, after)| before != after).count();
        assert_eq!(
            (changed, EXAMPLE.lines().count()),
            (3, text.lines().count()),
            "two keys and their header"
        );
    }

    #[test]
    fn a_configuration_says_where_its_socket_is() {
        let socket = |text: &str| Settings::parse(text).unwrap().socket;
        assert_eq!(socket("[paths]\nrun = \"/run/x\""), Path::new("/run/x/podvisor.sock"));
        assert_eq!(socket("[paths]\nsocket = \"/s\""), Path::new("/s"));
        assert!(matches!(Settings::parse("[paths"), Err(SettingsError::Parse(_))));
        let error = set("[upstream]\n", "upstream", "socket", &"x".into()).unwrap_err().to_string();
        assert!(error.contains("no line for upstream.socket"), "{error}");
    }
}
