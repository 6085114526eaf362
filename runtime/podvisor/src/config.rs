//! The one configuration file, as structs with their defaults. `config/keys.rs` describes each key, and the
//! operator's documents are generated from it. A test in `config/reference.rs` fails if a key is missing
//! there. This module does nothing on the host but read the file and ask the daemon.
//!
//! | topic | file |
//! |---|---|
//! | reading the file, and its errors | `file.rs`, `check.rs`, `filter.rs`, `place.rs` |
//! | the value of each key, and its origin | `setting.rs` |
//! | changes by `isolation.tenancy` | `tenancy.rs` |
//! | changed keys, and those used after a reload | `change.rs` |
//! | the daemon's configuration in force | `view.rs`, requested in `ask.rs` |
//! | the output of `podvisor config` | `command.rs`, `report.rs`, `print.rs`, `reference.rs` |

pub(crate) mod ask;
pub(crate) mod change;
mod check;
pub(crate) mod command;
mod file;
pub(crate) mod filter;
mod isolation;
pub(crate) mod keys;
mod nri;
pub(crate) mod page;
mod place;
mod print;
mod reference;
mod report;
pub(crate) mod setting;
mod tenancy;
pub(crate) mod view;

pub(crate) use file::{ConfigError, LOG_VARIABLE, Loaded, load};
pub(crate) use isolation::Walls;
mod traces;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context;
use runtime_cri::UpstreamConfig;
use runtime_net::{CniConfig, SettingsPolicy};
use runtime_nri::NriConfig;
use runtime_pod::DaemonDirs;
use runtime_spec::{Kernel, TemplateScope, VolumeCache};
use runtime_streaming::Tls;
use serde::{Deserialize, Serialize};

use self::isolation::Isolation;
use self::nri::Nri;
use self::traces::Traces;

/// The file read by default. It may be missing.
pub(crate) const DEFAULT_FILE: &str = "/etc/podvisor/config.toml";

/// The whole configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) paths: Paths,
    pub(crate) isolation: Isolation,
    pub(crate) cni: Cni,
    pub(crate) cgroup: Cgroup,
    pub(crate) registries: Registries,
    pub(crate) streaming: Streaming,
    pub(crate) metrics: Metrics,
    pub(crate) traces: Traces,
    pub(crate) log: Log,
    pub(crate) nri: Nri,
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
    /// The syntax of templates is in `runtime/net/src/template.rs`.
    pub(crate) conf_template: Option<PathBuf>,
    pub(crate) settings: Settings,
    pub(crate) spare_namespaces: u8,
}

/// How to treat settings made by CNI plugins in a pod's network namespace.
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

/// The creator of the pods' cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CgroupDriver {
    Systemd,
    Cgroupfs,
}

impl From<CgroupDriver> for runtime_cri::CgroupDriver {
    fn from(driver: CgroupDriver) -> runtime_cri::CgroupDriver {
        match driver {
            CgroupDriver::Systemd => runtime_cri::CgroupDriver::Systemd,
            CgroupDriver::Cgroupfs => runtime_cri::CgroupDriver::Cgroupfs,
        }
    }
}

/// Image registries.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Registries {
    pub(crate) insecure: Vec<String>,
    pub(crate) config_dir: PathBuf,
    /// The syntax of patterns is in `runtime/image/src/pinned.rs`.
    pub(crate) pinned: Vec<String>,
}

/// The server of exec, attach and port-forward.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Streaming {
    pub(crate) address: SocketAddr,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// The server of metrics for Prometheus.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Metrics {
    pub(crate) address: Option<SocketAddr>,
}

/// The log of a serving process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    /// The syntax of filters is in `config/filter.rs`.
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// A second runtime of the node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Upstream {
    pub(crate) socket: Option<PathBuf>,
    pub(crate) handlers: Vec<String>,
    pub(crate) unnamed_pods: UnnamedPods,
}

/// Which pods without a handler's name go to another runtime.
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
    pub(crate) scratch_sum_mib: Option<u64>,
    pub(crate) writable_layer_mib: Option<u64>,
    pub(crate) share_all_volumes: bool,
    pub(crate) volume_cache: VolumeCache,
    pub(crate) host_sockets: Vec<PathBuf>,
    pub(crate) kernel: Kernel,
    pub(crate) template: TemplateScope,
    pub(crate) spare_vms: u8,
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
            bin_dirs: ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"].map(PathBuf::from).into(),
            cache_dir: "/var/lib/cni/podvisor".into(),
            conf_template: None,
            settings: Settings::Replay,
            spare_namespaces: 4,
        }
    }
}

impl Default for Registries {
    fn default() -> Self {
        Self { insecure: Vec::new(), config_dir: "/etc/podvisor/certs.d".into(), pinned: Vec::new() }
    }
}

impl Default for Streaming {
    fn default() -> Self {
        Self { address: (Ipv4Addr::LOCALHOST, 0).into(), certificate: None, key: None }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text }
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
            scratch_sum_mib: None,
            writable_layer_mib: None,
            share_all_volumes: false,
            volume_cache: VolumeCache::None,
            host_sockets: Vec::new(),
            kernel: Kernel::Small,
            template: TemplateScope::Node,
            spare_vms: 0,
        }
    }
}

impl Cni {
    /// The configuration of pods' networks, with the runtime's own bounds.
    pub(crate) fn pod_networks(&self) -> CniConfig {
        CniConfig {
            conf_dir: self.conf_dir.clone(),
            bin_dirs: self.bin_dirs.clone(),
            cache_dir: self.cache_dir.clone(),
            spares_max: usize::from(self.spare_namespaces),
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
    /// The daemon's two directories.
    pub(crate) fn dirs(&self) -> DaemonDirs {
        DaemonDirs { state_dir: self.paths.state.clone(), run_dir: self.paths.run.clone() }
    }

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

    /// The file of a guest kernel.
    pub(crate) fn kernel(&self, kernel: Kernel) -> PathBuf {
        self.paths.guest_image.join(match kernel {
            Kernel::Small => "vmlinux",
            Kernel::Full => "vmlinux-full",
        })
    }

    /// The guest's root image.
    pub(crate) fn root_image(&self) -> PathBuf {
        self.paths.guest_image.join("root.erofs")
    }

    /// The template of scratch disks.
    pub(crate) fn scratch_template(&self) -> PathBuf {
        self.paths.guest_image.join("scratch.ext4")
    }

    /// The template of disks of volumes.
    pub(crate) fn volume_template(&self) -> PathBuf {
        self.paths.guest_image.join("volume.ext4")
    }

    /// The handlers of VMs, and the name of the default one. `None` if none of them serves requests without a
    /// handler.
    pub(crate) fn handlers(&self) -> (Vec<Handler>, Option<String>) {
        let handlers = if self.handler.is_empty() { vec![Handler::default()] } else { self.handler.clone() };
        let default = self.first_handler().filter(|_| !self.sends_unnamed_pods_away());
        (handlers, default)
    }

    /// The handler of VMs for a command that names none: the only one, or the one marked as the default,
    /// wherever requests without a handler go. `None` if there are several without a mark.
    pub(crate) fn first_handler(&self) -> Option<String> {
        match &self.handler[..] {
            [] => Some(Handler::default().name),
            [only] => Some(only.name.clone()),
            many => many.iter().find(|handler| handler.default).map(|handler| handler.name.clone()),
        }
    }

    /// The handler for a request of a command for a VM. Empty if the daemon's default is one.
    ///
    /// # Errors
    /// Requests without a handler go to another runtime, and no handler of VMs is marked.
    pub(crate) fn handler_of_vms(&self) -> anyhow::Result<String> {
        if !self.sends_unnamed_pods_away() {
            return Ok(String::new());
        }
        self.first_handler().context("no handler of VMs is the default one; name one with --handler")
    }

    /// Whether a request without a handler goes to the runtime behind Podvisor.
    fn sends_unnamed_pods_away(&self) -> bool {
        self.upstream.socket.is_some() && self.upstream.unnamed_pods == UnnamedPods::All
    }

    /// The configuration of plugins.
    pub(crate) fn nri(&self) -> NriConfig {
        self.nri.config(self.upstream.socket.as_ref().map(|_| self.paths.run.join("nri.sock")))
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
            cgroup_driver: self.cgroup.driver.map(Into::into),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        file::parse(Path::new("x"), text).map(|loaded| loaded.config)
    }

    #[test]
    fn an_empty_file_gives_one_default_handler() {
        let config = parse("").unwrap();
        let (handlers, default) = config.handlers();
        assert_eq!(handlers.len(), 1);
        assert_eq!(default.as_deref(), Some("podvisor"));
        assert_eq!(config.socket(), Path::new("/run/podvisor/podvisor.sock"));
    }

    #[test]
    fn with_several_handlers_and_no_default_an_unnamed_request_has_none() {
        let config = parse("[[handler]]\nname = \"a\"\n[[handler]]\nname = \"b\"\n").unwrap();
        assert_eq!(config.handlers().1, None);
    }

    #[test]
    fn another_runtime_gets_its_handlers_and_the_pods_that_name_none() {
        let config = |unnamed: &str| {
            let text =
                format!("[upstream]\nsocket = \"/c\"\nhandlers = [\"crun\"]\nunnamed_pods = \"{unnamed}\"\n");
            parse(&text).unwrap()
        };
        let upstream = config("node").upstream().unwrap();
        assert_eq!((upstream.socket, upstream.handlers), ("/c".into(), vec!["crun".into()]));
        assert_eq!(config("none").handlers().1.as_deref(), Some("podvisor"));
        assert_eq!(config("all").handlers().1, None);
        assert!(Config::default().upstream().is_none());
    }

    #[test]
    fn a_policy_for_settings_that_is_none_is_refused_with_those_that_are() {
        let policy = |name: &str| {
            let config = parse(&format!("[cni]\nsettings = \"{name}\"\n")).unwrap();
            config.cni.pod_networks().settings.name()
        };
        for name in ["replay", "replay-or-refuse", "warn", "refuse"] {
            assert_eq!(policy(name), name);
        }
        assert_eq!(Config::default().cni.pod_networks().settings.name(), "replay");
        let error = parse("[cni]\nsettings = \"ignore\"\n").unwrap_err();
        let message = format!("{:#}", anyhow::Error::from(error));
        assert!(message.contains("replay-or-refuse") && message.contains("warn"), "{message}");
    }

    #[test]
    fn the_default_configuration_survives_being_written_and_read() {
        let text = toml::to_string(&Config::default()).unwrap();
        let again = parse(&text).unwrap();
        assert_eq!(toml::to_string(&again).unwrap(), text);
    }
}
