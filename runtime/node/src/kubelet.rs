//! The node's kubelet and its runtime. One file of ours beside the kubelet's own switches it. Removing the
//! file switches it back, and upgrades of the kubelet's own files change nothing.
//!
//! For a kubelet in a systemd unit, as with kubeadm, the file is a systemd drop-in. It repeats the kubelet's
//! command with one more argument, because the last of several counts and arguments override configuration
//! files. A distribution that starts the kubelet itself is given that argument: k3s and RKE2 by a file of
//! their configuration, k0s by a drop-in of its unit. Its own containerd goes on.

use std::path::{Path, PathBuf};

use crate::distribution::{self, ARGUMENT, Distribution, EXTRA_ARGUMENTS};
use crate::host::{CallError, Host};
use crate::kubelet_command::{command, configured, flag, last_command_file};
use crate::microk8s;
use crate::payload::CONFIGURATION;
use crate::processes::{self, ProcessesError};
use crate::root::{HostRoot, RootError};
use crate::started::{Started, StartedError};

/// Endpoint of a kubelet without an explicit one (kubelet(1), since 1.27).
const DEFAULT_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// A kubelet's argument, and the key of its configuration.
const FLAG: &str = "--container-runtime-endpoint";

/// A KubeletConfiguration has a few hundred lines.
const BYTES_MAX: u64 = 1 << 20;

/// The first lines of each file written here.
const HEAD: &str =
    "# Written by `podvisor node install --switch-kubelet`, and taken away by `podvisor node remove`.\n";

/// A kubelet of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kubelet {
    /// A unit of systemd.
    Unit,
    /// Started by a distribution.
    Of {
        distribution: &'static Distribution,
        /// The distribution's unit.
        unit: &'static str,
    },
}

/// A failed switch of the kubelet.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// The node's disk failed.
    #[error(transparent)]
    Root(#[from] RootError),
    /// systemd refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The node's processes cannot be seen.
    #[error(transparent)]
    Processes(#[from] ProcessesError),
    /// The start of the kubelet's unit cannot be read.
    #[error(transparent)]
    Started(#[from] StartedError),
    /// There is no kubelet of a known kind.
    #[error(
        "this node has neither kubelet.service nor k3s, RKE2 or k0s: set the kubelet's containerRuntimeEndpoint by hand"
    )]
    Unknown,
    /// The unit has no command, or several.
    #[error("the command of {unit} is not to be found: set the kubelet's containerRuntimeEndpoint by hand")]
    NoCommand {
        /// The kubelet's unit.
        unit: &'static str,
    },
    /// The path of the daemon's socket needs escaping in configuration files.
    #[error("the socket {0:?} has characters not allowed in a unit")]
    Socket(PathBuf),
    /// The distribution is started with an argument or a variable that overrides the switch.
    #[error("{unit} is started with {argument}, and this overrides the switch: change it there by hand")]
    Fixed {
        /// The unit of the distribution.
        unit: &'static str,
        /// The argument, or the variable.
        argument: &'static str,
    },
    /// A file of the distribution's configuration is read after ours and replaces the kubelet's arguments.
    #[error(
        "{} sets kubelet-arg after the file of the switch, which has no effect so: write kubelet-arg+ there, \
         or remove container-runtime-endpoint from it",
        .file.display()
    )]
    Replaced {
        /// The other file.
        file: PathBuf,
    },
    /// Another drop-in sets the kubelet's command after ours.
    #[error(
        "{file} sets the kubelet's command after the file of the switch, which has no effect so: rename it to sort before 90-, \
         or remove its ExecStart"
    )]
    Overridden {
        /// The other file.
        file: String,
    },
    /// With the daemon as it is, the kubelet would set the node NotReady.
    #[error(
        "the kubelet was not switched, since the node would not be ready with it ({said}): a network add-on may still have to write its \
         configuration, or cni.conf_dir and cni.bin_dirs in {CONFIGURATION} are not those of the node's network"
    )]
    NotReady {
        /// The daemon's reason.
        said: String,
    },
    /// The kubelet did not keep running with Podvisor, and has its old runtime again.
    #[error(
        "{unit} did not keep running with Podvisor ({said}) and uses its old runtime again; see journalctl -u {unit}"
    )]
    Fell {
        /// The kubelet's unit.
        unit: String,
        /// systemd's words on its state.
        said: String,
    },
    /// The kubelet did not keep running with this switch before, and was not restarted again.
    #[error(
        "{unit} did not keep running with this switch before ({said}), and is not restarted for it again; see journalctl -u {unit}, \
         and run podvisor node leave on the node for another attempt"
    )]
    FellBefore {
        /// The kubelet's unit.
        unit: String,
        /// What was seen of the kubelet then.
        said: String,
    },
    /// The kubelet did not keep running after a change of the switch, and has the switch of before again.
    #[error(
        "{unit} did not keep running after its switch was renewed ({said}), and has the earlier file of the switch again; \
         see journalctl -u {unit}"
    )]
    FellAgain {
        /// The kubelet's unit.
        unit: String,
        /// systemd's words on its state.
        said: String,
    },
}

impl Kubelet {
    /// Finds the node's kubelet: the running one, else an installed one. A node may have kept the unit of
    /// another distribution.
    pub(crate) fn find(host: &dyn Host) -> Result<Kubelet, KubeletError> {
        let of = |distribution: &'static Distribution| {
            distribution.units.map(|unit| Kubelet::Of { distribution, unit })
        };
        let kubelets: Vec<Kubelet> = distribution::ALL.iter().flat_map(of).chain([Kubelet::Unit]).collect();
        for (property, wanted) in [("ActiveState", "active"), ("LoadState", "loaded")] {
            for kubelet in &kubelets {
                let property = format!("--property={property}");
                if host.run("systemctl", &["show", &property, "--value", kubelet.unit()])?.trim() == wanted {
                    return Ok(*kubelet);
                }
            }
        }
        Err(KubeletError::Unknown)
    }

    /// The kubelet's unit.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Kubelet::Unit => "kubelet.service",
            Kubelet::Of { unit, .. } => unit,
        }
    }

    /// How the kubelet's unit is started, without the file of the switch.
    pub(crate) fn started(self, root: &HostRoot, host: &dyn Host) -> Result<Started, StartedError> {
        Started::read(root, host, self.unit(), &self.drop_in())
    }

    /// Whether another process than the unit's starts the kubelet again if it ends.
    pub(crate) fn is_supervised(self) -> bool {
        matches!(self, Kubelet::Of { distribution, .. } if distribution.has_kubelet_process())
    }

    /// The file for switching the kubelet to Podvisor.
    pub(crate) fn drop_in(self) -> PathBuf {
        match self.overrides() {
            Some(directory) => directory.join("90-podvisor.yaml"),
            None => format!("/etc/systemd/system/{}.d/90-podvisor.conf", self.unit()).into(),
        }
    }

    /// The directory of the distribution's configuration, where it has one.
    fn overrides(self) -> Option<PathBuf> {
        match self {
            Kubelet::Unit => None,
            Kubelet::Of { distribution, .. } => distribution.overrides(),
        }
    }

    /// Fails if another file takes the effect of the switch's own file. systemd has read both.
    pub(crate) fn insist_on_effect(
        self,
        root: &HostRoot,
        host: &dyn Host,
        socket: &Path,
    ) -> Result<(), KubeletError> {
        if let Kubelet::Of { distribution, .. } = self
            && distribution.overrides().is_some()
        {
            let found = distribution.endpoint(root, &self.started(root, host)?)?;
            return match (found.value.as_deref().map(socket_of), found.last_file) {
                (Some(used), _) if plain(&used) == plain(socket) => Ok(()),
                (_, file) => Err(KubeletError::Replaced { file: file.unwrap_or_else(|| self.drop_in()) }),
            };
        }
        let unit = host.run("systemctl", &["cat", self.unit()])?;
        let ours = self.drop_in();
        match last_command_file(&unit).filter(|file| Path::new(file) != ours) {
            Some(file) => Err(KubeletError::Overridden { file }),
            None => Ok(()),
        }
    }

    /// Returns the file's text for the daemon at `socket`. Fails if a switch would not work.
    pub(crate) fn text(
        self,
        root: &HostRoot,
        host: &dyn Host,
        socket: &Path,
    ) -> Result<String, KubeletError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let endpoint = match socket.to_str() {
            Some(text) if socket.is_absolute() && text.chars().all(plain) => format!("unix://{text}"),
            _ => return Err(KubeletError::Socket(socket.to_owned())),
        };
        if let Kubelet::Of { distribution, unit } = self
            && let Some(argument) = distribution.other_configuration(&self.started(root, host)?)
        {
            return Err(KubeletError::Fixed { unit, argument });
        }
        let unit = host.run("systemctl", &["cat", self.unit()])?;
        let command = command(&unit, &self.drop_in());
        let fixed = |argument| {
            let is_fixed = command.as_ref().is_some_and(|command| command.contains(argument));
            if is_fixed { Err(KubeletError::Fixed { unit: self.unit(), argument }) } else { Ok(()) }
        };
        if self.overrides().is_some() {
            fixed(ARGUMENT)?;
            return Ok(format!("{HEAD}kubelet-arg+:\n  - {ARGUMENT}={endpoint}\n"));
        }
        let argument = match self {
            Kubelet::Unit => format!("{FLAG}={endpoint}"),
            Kubelet::Of { .. } => {
                fixed(EXTRA_ARGUMENTS)?;
                format!("{EXTRA_ARGUMENTS}={FLAG}={endpoint}")
            }
        };
        let command = command.ok_or(KubeletError::NoCommand { unit: self.unit() })?;
        Ok(format!(
            "{HEAD}[Unit]\nWants=podvisor.service\nAfter=podvisor.service\n\n\
             [Service]\nExecStart=\nExecStart={command} {argument}\n"
        ))
    }
}

/// Whether pods of another runtime would be left behind by this unit's return to its own: a distribution has
/// a containerd of its own. Other kubelets go back to the runtime that these pods are in.
pub(crate) fn leaves_pods_behind(root: &HostRoot, unit: &str) -> Result<bool, ProcessesError> {
    let Some(distribution) = Distribution::of(unit) else { return Ok(false) };
    let shims = processes::named(root, "containerd-shim")?;
    Ok(shims.iter().any(|shim| {
        // Docker's containers are nobody's pods.
        let is_pods = flag(&shim.arguments, "-namespace").is_none_or(|namespace| namespace == "k8s.io");
        is_pods && !shim.arguments.iter().any(|argument| argument.contains(distribution.containerd))
    }))
}

/// Returns the socket of the running kubelet's runtime; `None` if no kubelet is found.
pub(crate) fn socket_in_use(root: &HostRoot, host: &dyn Host) -> Result<Option<PathBuf>, KubeletError> {
    if let Some(kubelet) = processes::of_node(root, "kubelet")?.first() {
        return Ok(Some(socket_by(root, &kubelet.arguments)?));
    }
    if let Some(arguments) = microk8s::kubelet_arguments(root)? {
        return Ok(Some(socket_by(root, &arguments)?));
    }
    // The arguments of a kubelet inside another process are not in /proc.
    let Some(distribution) = Distribution::with_kubelet_inside(root)? else { return Ok(None) };
    let endpoint = distribution.endpoint(root, &started_around(root, host)?)?.value;
    Ok(Some(socket_of(endpoint.as_deref().unwrap_or(distribution.containerd))))
}

/// How a running distribution with the kubelet inside is started, by its unit: in /proc it hides its
/// arguments. Nothing is known of one that systemd did not start.
pub(crate) fn started_around(root: &HostRoot, host: &dyn Host) -> Result<Started, KubeletError> {
    match Kubelet::find(host) {
        Ok(kubelet) => Ok(kubelet.started(root, host)?),
        Err(KubeletError::Unknown | KubeletError::Call(CallError::Start { .. })) => Ok(Started::default()),
        Err(error) => Err(error),
    }
}

/// The process of the kubelet that uses the daemon at `socket`.
pub(crate) fn process_with(root: &HostRoot, socket: &Path) -> Result<Option<u32>, KubeletError> {
    for kubelet in processes::of_node(root, "kubelet")? {
        if plain(&socket_by(root, &kubelet.arguments)?) == plain(socket) {
            return Ok(Some(kubelet.pid));
        }
    }
    Ok(None)
}

/// The path of a socket, one for both of its usual spellings: `/var/run` is a link to `/run`.
pub(crate) fn plain(socket: &Path) -> PathBuf {
    match socket.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => socket.to_owned(),
    }
}

/// The socket of a kubelet's runtime by its arguments. The one for it wins over the files of `--config-dir`,
/// and these in the order of their names over the file of `--config` (Kubernetes,
/// `cmd/kubelet/app/server.go`).
fn socket_by(root: &HostRoot, arguments: &[String]) -> Result<PathBuf, RootError> {
    if let Some(endpoint) = flag(arguments, FLAG) {
        return Ok(socket_of(&endpoint));
    }
    let mut files: Vec<PathBuf> = flag(arguments, "--config").map(PathBuf::from).into_iter().collect();
    if let Some(directory) = flag(arguments, "--config-dir").map(PathBuf::from) {
        let mut names = root.names(&directory)?;
        names.retain(|name| name.ends_with(".conf"));
        names.sort();
        files.extend(names.iter().map(|name| directory.join(name)));
    }
    let mut endpoint = DEFAULT_ENDPOINT.to_owned();
    for file in files {
        let text = root.read(&file, BYTES_MAX)?.unwrap_or_default();
        endpoint = configured(&text).unwrap_or(endpoint);
    }
    Ok(socket_of(&endpoint))
}

/// The socket of a kubelet's endpoint, with or without its scheme.
pub(crate) fn socket_of(endpoint: &str) -> PathBuf {
    endpoint.strip_prefix("unix://").unwrap_or(endpoint).into()
}
