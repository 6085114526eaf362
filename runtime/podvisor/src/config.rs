//! The one configuration file: what the operator may set, with the defaults beside it. Unknown keys
//! are refused with file and line. Nothing here looks at the host beyond reading that file.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use runtime_streaming::Tls;
use serde::{Deserialize, Serialize};

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
    /// Runtime handlers by name. Without any there is one, `podvisor`, with the defaults. The handler
    /// with an empty name in a request is the first by name that says `default = true`, else the only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) handler: Vec<Handler>,
}

/// Where things are and where they are kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Paths {
    /// Kept over a restart of the node: images, the store, scratch disks.
    pub(crate) state: PathBuf,
    /// Gone with a restart of the node: sockets and per-pod directories.
    pub(crate) run: PathBuf,
    /// The CRI socket; `<run>/podvisor.sock` unless set.
    pub(crate) socket: Option<PathBuf>,
    /// The monitor; beside `podvisor` itself unless set.
    pub(crate) vmm: Option<PathBuf>,
    /// Holds `vmlinux`, `root.erofs` and `scratch.ext4`.
    pub(crate) guest_image: PathBuf,
}

/// Container networks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Cni {
    /// The first configuration by name counts.
    pub(crate) conf_dir: PathBuf,
    /// Searched in order.
    pub(crate) bin_dirs: Vec<PathBuf>,
    /// What DEL needs to know after a restart.
    pub(crate) cache_dir: PathBuf,
    /// Becomes a configuration in `conf_dir` when the kubelet tells the node's pod ranges; see
    /// `runtime/net/src/template.rs` for its language.
    pub(crate) conf_template: Option<PathBuf>,
}

/// The host's cgroups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Cgroup {
    /// Who makes the pods' cgroups; systemd where it runs the host, unless set. The kubelet follows it.
    pub(crate) driver: Option<CgroupDriver>,
}

/// Who makes the pods' cgroups.
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
    /// `host[:port]` that are spoken to over plain HTTP. Loopback addresses always are.
    pub(crate) insecure: Vec<String>,
    /// A directory per registry with its mirrors: containerd's `<registry>/hosts.toml`. May be absent.
    pub(crate) config_dir: PathBuf,
}

/// Where exec, attach and port-forward are served.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Streaming {
    /// Not beyond this node without need: the kubelet, who is the client, is on it. Port 0 is any free one.
    pub(crate) address: SocketAddr,
    /// Makes it TLS instead of plain HTTP: the certificate and those between it and its authority, in PEM. It
    /// must name the address, and the kubelet must find its authority among the system's.
    pub(crate) certificate: Option<PathBuf>,
    /// The certificate's private key, in PEM. Both are read again when they have changed.
    pub(crate) key: Option<PathBuf>,
}

/// A RuntimeClass handler.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Handler {
    /// As in the RuntimeClass.
    pub(crate) name: String,
    /// Serves requests that name no handler.
    pub(crate) default: bool,
    /// Guest memory of a pod whose resources the kubelet does not send, MiB.
    pub(crate) memory_mib: u64,
    /// Memory that a pod's VM may grow to, its overhead included, MiB; what the host has unless set.
    pub(crate) memory_max_mib: Option<u64>,
    /// vCPUs that a pod may have; the host's number of CPUs unless set.
    pub(crate) vcpus_max: Option<u8>,
    /// Size of a pod's scratch disk, MiB.
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

/// Why the configuration cannot be used.
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

/// Reads the file named, or the default one if there is one, or takes the defaults.
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
    if config.streaming.certificate.is_some() != config.streaming.key.is_some() {
        return invalid("streaming.certificate and streaming.key go together, and only one is set".into());
    }
    Ok(config)
}

impl Streaming {
    /// The files of a server that speaks TLS.
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

    /// The monitor's binary.
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

    /// What scratch disks are copied from.
    pub(crate) fn scratch_template(&self) -> PathBuf {
        self.paths.guest_image.join("scratch.ext4")
    }

    /// The handlers, and which of them serves requests that name none.
    pub(crate) fn handlers(&self) -> (Vec<Handler>, Option<String>) {
        let handlers = if self.handler.is_empty() { vec![Handler::default()] } else { self.handler.clone() };
        let default = match &handlers[..] {
            [only] => Some(only.name.clone()),
            many => many.iter().find(|handler| handler.default).map(|handler| handler.name.clone()),
        };
        (handlers, default)
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
    fn a_cgroup_driver_that_is_none_is_refused_with_those_that_are() {
        let config = parse(Path::new("x"), "[cgroup]\ndriver = \"cgroupfs\"\n").unwrap();
        assert_eq!(config.cgroup.driver, Some(CgroupDriver::Cgroupfs));
        let message = message("[cgroup]\ndriver = \"runc\"\n");
        assert!(message.contains("systemd") && message.contains("cgroupfs"), "{message}");
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

    #[test]
    fn the_product_stays_at_twenty_choices() {
        let keys = |value: toml::Value| value.as_table().map_or(1, toml::Table::len);
        let config = Config {
            handler: vec![Handler { vcpus_max: Some(1), memory_max_mib: Some(1), ..Default::default() }],
            ..Default::default()
        };
        let tables = toml::Table::try_from(&config).unwrap();
        let count: usize = tables
            .into_iter()
            .map(|(_, value)| match value {
                toml::Value::Array(handlers) => handlers.into_iter().map(keys).sum(),
                other => keys(other),
            })
            .sum();
        // `socket`, `vmm`, `conf_template`, `driver`, and a certificate with its key, which are one choice, are unset by
        // default and not counted by the serializer.
        assert!(count + 5 <= 20, "{count}");
    }
}
