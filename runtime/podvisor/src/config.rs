//! The one configuration file, as structs with their defaults. Unknown keys are refused with file and line.
//! The meaning of each key is in `config/keys.rs`, from which the operator's documents are made; a test in
//! `config/reference.rs` fails where a key is missing. Nothing here looks at the host beyond reading the file.

pub(crate) mod command;
mod keys;
pub(crate) mod page;
mod reference;
mod traces;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use runtime_cri::UpstreamConfig;
use runtime_net::{CniConfig, SettingsPolicy};
use runtime_streaming::Tls;
use serde::{Deserialize, Serialize};

use self::traces::Traces;

/// Read when no file is named; may be absent.
const DEFAULT_FILE: &str = "/etc/podvisor/config.toml";

/// The whole configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) paths: Paths,
    pub(crate) cni: Cni,
    pub(crate) cgroup: Cgroup,
    pub(crate) registries: Registries,
    pub(crate) streaming: Streaming,
    pub(crate) metrics: Metrics,
    pub(crate) traces: Traces,
    pub(crate) upstream: Upstream,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) handler: Vec<Handler>,
}

/// Places of Podvisor's parts and files.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Paths {
    pub(crate) state: PathBuf,
    pub(crate) run: PathBuf,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) vmm: Option<PathBuf>,
    pub(crate) guest_image: PathBuf,
}

/// Container networks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Cni {
    pub(crate) conf_dir: PathBuf,
    pub(crate) bin_dirs: Vec<PathBuf>,
    pub(crate) cache_dir: PathBuf,
    /// The language of templates is in `runtime/net/src/template.rs`.
    pub(crate) conf_template: Option<PathBuf>,
    pub(crate) settings: Settings,
}

/// The fate of settings that CNI plugins leave in a pod's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Settings {
    Replay,
    ReplayOrRefuse,
    Warn,
    Refuse,
}

/// The host's cgroups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Cgroup {
    pub(crate) driver: Option<CgroupDriver>,
    pub(crate) strict: bool,
}

/// The maker of the pods' cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CgroupDriver {
    Systemd,
    Cgroupfs,
}

/// Image registries.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Registries {
    pub(crate) insecure: Vec<String>,
    pub(crate) config_dir: PathBuf,
}

/// The server of exec, attach and port-forward.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Streaming {
    pub(crate) address: SocketAddr,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// The server of figures for Prometheus.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Metrics {
    pub(crate) address: Option<SocketAddr>,
}

/// A second runtime of the node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Upstream {
    pub(crate) socket: Option<PathBuf>,
    pub(crate) handlers: Vec<String>,
    pub(crate) unnamed_pods: UnnamedPods,
}

/// The pods without a handler's name that another runtime gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UnnamedPods {
    None,
    Node,
    All,
}

/// A RuntimeClass handler.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Handler {
    pub(crate) name: String,
    pub(crate) default: bool,
    pub(crate) memory_mib: u64,
    pub(crate) memory_max_mib: Option<u64>,
    pub(crate) vcpus_max: Option<u8>,
    pub(crate) scratch_mib: u64,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            state: "/var/lib/podvisor".into(),
            run: "/run/podvisor".into(),
            socket: None,
            vmm: None,
            guest_image: "/usr/lib/podvisor".into(),
        }
    }
}

impl Default for Cni {
    fn default() -> Self {
        Self {
            conf_dir: "/etc/cni/net.d".into(),
            bin_dirs: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            cache_dir: "/var/lib/cni/podvisor".into(),
            conf_template: None,
            settings: Settings::Replay,
        }
    }
}

impl Default for Registries {
    fn default() -> Self {
        Self { insecure: Vec::new(), config_dir: "/etc/podvisor/certs.d".into() }
    }
}

impl Default for Streaming {
    fn default() -> Self {
        Self { address: (Ipv4Addr::LOCALHOST, 0).into(), certificate: None, key: None }
    }
}

impl Default for Upstream {
    fn default() -> Self {
        Self { socket: None, handlers: vec!["runc".into()], unnamed_pods: UnnamedPods::Node }
    }
}

impl Default for Handler {
    fn default() -> Self {
        Self {
            name: "podvisor".into(),
            default: false,
            memory_mib: 256,
            memory_max_mib: None,
            vcpus_max: None,
            scratch_mib: 8 * 1024,
        }
    }
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read the configuration {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The parser's own message has line, column and the key.
    #[error("configuration {}", path.display())]
    Parse { path: PathBuf, source: toml::de::Error },
    #[error("configuration {}: {message}", path.display())]
    Invalid { path: PathBuf, message: String },
}

/// Reads the named file, or the default file if there is one, or takes the defaults.
pub(crate) fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
    let file = path.unwrap_or(Path::new(DEFAULT_FILE));
    match std::fs::read_to_string(file) {
        Ok(text) => parse(file, &text),
        Err(error) if path.is_none() && error.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
        Err(source) => Err(ConfigError::Read { path: file.to_owned(), source }),
    }
}

fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
    let config: Config =
        toml::from_str(text).map_err(|source| ConfigError::Parse { path: path.to_owned(), source })?;
    let invalid = |message: String| Err(ConfigError::Invalid { path: path.to_owned(), message });
    for (index, handler) in config.handler.iter().enumerate() {
        if handler.name.is_empty() {
            return invalid(format!("handler {index} has an empty name"));
        }
        if config.handler[..index].iter().any(|other| other.name == handler.name) {
            return invalid(format!("handler {:?} is there twice", handler.name));
        }
    }
    if config.handler.iter().filter(|handler| handler.default).count() > 1 {
        return invalid("more than one handler says default = true".into());
    }
    if let Err(message) = check_upstream(&config) {
        return invalid(message);
    }
    if let Err(message) = config.traces.resolved() {
        return invalid(message);
    }
    if config.streaming.certificate.is_some() != config.streaming.key.is_some() {
        return invalid("streaming.certificate and streaming.key go together, and only one is set".into());
    }
    Ok(config)
}

/// Checks what the configuration says of another runtime against the handlers.
fn check_upstream(config: &Config) -> Result<(), String> {
    let Upstream { socket: Some(_), handlers, unnamed_pods } = &config.upstream else { return Ok(()) };
    for (index, name) in handlers.iter().enumerate() {
        if name.is_empty() {
            return Err(
                "upstream.handlers has an empty name; pods without a name are unnamed_pods' matter".into()
            );
        }
        let vms = config.handlers().0;
        if handlers[..index].contains(name) || vms.iter().any(|handler| handler.name == *name) {
            return Err(format!("handler {name:?} is there twice"));
        }
    }
    if *unnamed_pods == UnnamedPods::All && config.handler.iter().any(|handler| handler.default) {
        return Err("a handler says default = true, and upstream.unnamed_pods is \"all\"".into());
    }
    Ok(())
}

impl Cni {
    /// The configuration of pods' networks, with the runtime's own bounds.
    pub(crate) fn pod_networks(&self) -> CniConfig {
        CniConfig {
            conf_dir: self.conf_dir.clone(),
            bin_dirs: self.bin_dirs.clone(),
            cache_dir: self.cache_dir.clone(),
            settings: match self.settings {
                Settings::Replay => SettingsPolicy::Replay,
                Settings::ReplayOrRefuse => SettingsPolicy::ReplayOrRefuse,
                Settings::Warn => SettingsPolicy::Warn,
                Settings::Refuse => SettingsPolicy::Refuse,
            },
            ..CniConfig::default()
        }
    }
}

impl Streaming {
    /// The files of the certificate and its key; `None` for plain HTTP.
    pub(crate) fn tls(&self) -> Option<Tls> {
        let (certificate, key) = self.certificate.clone().zip(self.key.clone())?;
        Some(Tls { certificate, key })
    }
}

impl Config {
    /// The CRI socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.paths.socket.clone().unwrap_or_else(|| self.paths.run.join("podvisor.sock"))
    }

    /// The VMM's binary.
    pub(crate) fn vmm(&self) -> std::io::Result<PathBuf> {
        match &self.paths.vmm {
            Some(path) => Ok(path.clone()),
            None => Ok(std::env::current_exe()?.with_file_name("podvisor-vmm")),
        }
    }

    /// The guest kernel.
    pub(crate) fn kernel(&self) -> PathBuf {
        self.paths.guest_image.join("vmlinux")
    }

    /// The guest's root image.
    pub(crate) fn root_image(&self) -> PathBuf {
        self.paths.guest_image.join("root.erofs")
    }

    /// The file that scratch disks are copied from.
    pub(crate) fn scratch_template(&self) -> PathBuf {
        self.paths.guest_image.join("scratch.ext4")
    }

    /// The handlers of VMs, and the name of the one that serves requests without a handler, if it is one of them.
    pub(crate) fn handlers(&self) -> (Vec<Handler>, Option<String>) {
        let handlers = if self.handler.is_empty() { vec![Handler::default()] } else { self.handler.clone() };
        let default = match &handlers[..] {
            _ if self.upstream.socket.is_some() && self.upstream.unnamed_pods == UnnamedPods::All => None,
            [only] => Some(only.name.clone()),
            many => many.iter().find(|handler| handler.default).map(|handler| handler.name.clone()),
        };
        (handlers, default)
    }

    /// Returns the other runtime of the node, if there is one.
    pub(crate) fn upstream(&self) -> Option<UpstreamConfig> {
        let Upstream { socket, handlers, unnamed_pods } = &self.upstream;
        Some(UpstreamConfig {
            socket: socket.clone()?,
            handlers: handlers.clone(),
            unnamed_pods: match unnamed_pods {
                UnnamedPods::None => runtime_cri::UnnamedPods::None,
                UnnamedPods::Node => runtime_cri::UnnamedPods::OfTheNode,
                UnnamedPods::All => runtime_cri::UnnamedPods::All,
            },
            state_dir: self.paths.state.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        let error = parse(Path::new("/etc/podvisor/config.toml"), text).unwrap_err();
        format!("{:#}", anyhow::Error::from(error))
    }

    #[test]
    fn an_empty_file_gives_one_default_handler() {
        let config = parse(Path::new("x"), "").unwrap();
        let (handlers, default) = config.handlers();
        assert_eq!(handlers.len(), 1);
        assert_eq!(default.as_deref(), Some("podvisor"));
        assert_eq!(config.socket(), Path::new("/run/podvisor/podvisor.sock"));
    }

    #[test]
    fn an_unknown_key_is_refused_with_file_line_and_name() {
        let message = message("[paths]\nstate = \"/x\"\nstaet = \"/y\"\n");
        assert!(message.contains("/etc/podvisor/config.toml"), "{message}");
        assert!(message.contains("line 3") && message.contains("staet"), "{message}");
    }

    #[test]
    fn a_handler_that_is_there_twice_is_refused() {
        let message = message("[[handler]]\nname = \"a\"\n[[handler]]\nname = \"a\"\n");
        assert!(message.contains("\"a\" is there twice"), "{message}");
    }

    #[test]
    fn with_several_handlers_and_no_default_an_unnamed_request_has_none() {
        let config = parse(Path::new("x"), "[[handler]]\nname = \"a\"\n[[handler]]\nname = \"b\"\n").unwrap();
        assert_eq!(config.handlers().1, None);
    }

    #[test]
    fn another_runtime_gets_its_handlers_and_the_pods_that_name_none() {
        let config = |unnamed: &str| {
            let text =
                format!("[upstream]\nsocket = \"/c\"\nhandlers = [\"crun\"]\nunnamed_pods = \"{unnamed}\"\n");
            parse(Path::new("x"), &text).unwrap()
        };
        let upstream = config("node").upstream().unwrap();
        assert_eq!((upstream.socket, upstream.handlers), ("/c".into(), vec!["crun".into()]));
        assert_eq!(config("none").handlers().1.as_deref(), Some("podvisor"));
        assert_eq!(config("all").handlers().1, None);
        assert!(Config::default().upstream().is_none());
    }

    #[test]
    fn what_contradicts_the_handlers_of_vms_is_refused() {
        let upstream = |rest: &str| format!("[upstream]\nsocket = \"/c\"\n{rest}\n");
        for (text, why) in [
            (upstream("handlers = [\"podvisor\"]"), "\"podvisor\" is there twice"),
            (upstream("handlers = [\"a\", \"a\"]"), "\"a\" is there twice"),
            (upstream("handlers = [\"\"]"), "an empty name"),
            (upstream("unnamed_pods = \"some\""), "none"),
            (upstream("unnamed_pods = \"all\"\n[[handler]]\ndefault = true"), "says default = true"),
        ] {
            let message = message(&text);
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn a_cgroup_driver_that_is_none_is_refused_with_those_that_are() {
        let config = parse(Path::new("x"), "[cgroup]\ndriver = \"cgroupfs\"\n").unwrap();
        assert_eq!(config.cgroup.driver, Some(CgroupDriver::Cgroupfs));
        let message = message("[cgroup]\ndriver = \"runc\"\n");
        assert!(message.contains("systemd") && message.contains("cgroupfs"), "{message}");
    }

    #[test]
    fn a_policy_for_settings_that_is_none_is_refused_with_those_that_are() {
        let policy = |name: &str| {
            let config = parse(Path::new("x"), &format!("[cni]\nsettings = \"{name}\"\n")).unwrap();
            config.cni.pod_networks().settings.name()
        };
        for name in ["replay", "replay-or-refuse", "warn", "refuse"] {
            assert_eq!(policy(name), name);
        }
        assert_eq!(Config::default().cni.pod_networks().settings.name(), "replay");
        let message = message("[cni]\nsettings = \"ignore\"\n");
        assert!(message.contains("replay-or-refuse") && message.contains("warn"), "{message}");
    }

    #[test]
    fn a_certificate_and_its_key_go_together() {
        let both = "[streaming]\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"\n";
        let tls = parse(Path::new("x"), both).unwrap().streaming.tls().unwrap();
        assert_eq!((tls.certificate, tls.key), ("/c.pem".into(), "/k.pem".into()));
        assert!(parse(Path::new("x"), "").unwrap().streaming.tls().is_none());
        for key in ["certificate", "key"] {
            let message = message(&format!("[streaming]\n{key} = \"/x.pem\"\n"));
            assert!(message.contains("streaming.certificate and streaming.key go together"), "{message}");
        }
    }

    #[test]
    fn the_default_configuration_survives_being_written_and_read() {
        let text = toml::to_string(&Config::default()).unwrap();
        let again = parse(Path::new("x"), &text).unwrap();
        assert_eq!(toml::to_string(&again).unwrap(), text);
    }
}
