//! The node's kubelet and its runtime. One file of ours beside the kubelet's own switches it. Removing the
//! file switches it back, and upgrades of the kubelet's own files change nothing.
//!
//! For a kubelet in a systemd unit, as with kubeadm, the file is a systemd drop-in. It repeats the kubelet's
//! command with one more argument, because the last of several counts and arguments override configuration
//! files. k3s runs its kubelet in its own process, so there the file belongs to k3s's configuration.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::host::{CallError, Host};
use crate::processes::{self, ProcessesError};
use crate::root::{HostRoot, RootError};

/// Endpoint of a kubelet without an explicit one (kubelet(1), since 1.27).
const DEFAULT_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// A kubelet's argument, and the key of its configuration.
const FLAG: &str = "--container-runtime-endpoint";

/// A KubeletConfiguration has a few hundred lines.
const BYTES_MAX: u64 = 1 << 20;

/// Marks a process of k3s's own containerd, ended by the switch.
const K3S_CONTAINERD: &str = "/run/k3s/containerd/";

/// The directory of files that override the configuration of k3s.
pub(crate) const K3S_OVERRIDES: &str = "/etc/rancher/k3s/config.yaml.d";

/// Units with a kubelet of k3s.
const K3S_UNITS: [&str; 2] = ["k3s.service", "k3s-agent.service"];

/// The first lines of each file written here.
const HEAD: &str =
    "# Written by `podvisor node install --switch-kubelet`, and taken away by `podvisor node remove`.\n";

/// A kubelet of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kubelet {
    /// A unit of systemd.
    Unit,
    /// Inside k3s, as a server or as an agent.
    K3s { unit: &'static str },
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
    /// There is neither kind of kubelet.
    #[error(
        "this node has neither kubelet.service nor k3s: set the kubelet's containerRuntimeEndpoint by hand"
    )]
    Unknown,
    /// The unit has no command, or several.
    #[error(
        "the command of kubelet.service is not to be found: set the kubelet's containerRuntimeEndpoint by hand"
    )]
    NoCommand,
    /// The path of the daemon's socket needs escaping in configuration files.
    #[error("the socket {0:?} has characters not allowed in a unit")]
    Socket(PathBuf),
    /// k3s is started with an argument that overrides its configuration files.
    #[error("{unit} is started with {FLAG}, and this overrides its configuration: change it there by hand")]
    Fixed {
        /// The unit of k3s.
        unit: &'static str,
    },
    /// Pods run in k3s's own containerd. After a switch nothing would manage them.
    #[error(
        "pods run in k3s's own containerd, and k3s does not start it beside another runtime: \
         drain the node, run k3s-killall.sh, and run this command on the node itself"
    )]
    K3sPods,
    /// Another drop-in sets the kubelet's command after ours.
    #[error(
        "{file} sets the kubelet's command after the file of the switch, which has no effect so: rename it to sort before 90-, \
         or remove its ExecStart"
    )]
    Overridden {
        /// The other file.
        file: String,
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
}

impl Kubelet {
    /// Finds the node's kubelet: the running one, else an installed one. A node may have kept the unit of
    /// another distribution.
    pub(crate) fn find(host: &dyn Host) -> Result<Kubelet, KubeletError> {
        let k3s = K3S_UNITS.map(|unit| Kubelet::K3s { unit });
        for (property, wanted) in [("ActiveState", "active"), ("LoadState", "loaded")] {
            for kubelet in k3s.into_iter().chain([Kubelet::Unit]) {
                let property = format!("--property={property}");
                if host.run("systemctl", &["show", &property, "--value", kubelet.unit()])?.trim() == wanted {
                    return Ok(kubelet);
                }
            }
        }
        Err(KubeletError::Unknown)
    }

    /// The kubelet's unit.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Kubelet::Unit => "kubelet.service",
            Kubelet::K3s { unit } => unit,
        }
    }

    /// The file for switching the kubelet to Podvisor.
    pub(crate) fn drop_in(self) -> PathBuf {
        match self {
            Kubelet::Unit => "/etc/systemd/system/kubelet.service.d/90-podvisor.conf".into(),
            Kubelet::K3s { .. } => Path::new(K3S_OVERRIDES).join("90-podvisor.yaml"),
        }
    }

    /// The file that sets the kubelet's command after the switch's own file. systemd has read both.
    pub(crate) fn overridden_by(self, host: &dyn Host) -> Result<Option<String>, CallError> {
        let Kubelet::Unit = self else { return Ok(None) };
        let unit = host.run("systemctl", &["cat", self.unit()])?;
        let ours = self.drop_in();
        Ok(last_command_file(&unit).filter(|file| Path::new(file) != ours))
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
        let unit = host.run("systemctl", &["cat", self.unit()])?;
        let command = command(&unit, &self.drop_in());
        match self {
            Kubelet::Unit => {
                let command = command.ok_or(KubeletError::NoCommand)?;
                Ok(format!(
                    "{HEAD}[Unit]\nWants=podvisor.service\nAfter=podvisor.service\n\n\
                     [Service]\nExecStart=\nExecStart={command} {FLAG}={endpoint}\n"
                ))
            }
            Kubelet::K3s { unit } => {
                if command.is_some_and(|command| command.contains(FLAG)) {
                    return Err(KubeletError::Fixed { unit });
                }
                let shims = processes::arguments(root, "containerd-shim")?;
                if shims.iter().flatten().any(|argument| argument.contains(K3S_CONTAINERD)) {
                    return Err(KubeletError::K3sPods);
                }
                Ok(format!("{HEAD}container-runtime-endpoint: {endpoint}\n"))
            }
        }
    }
}

/// Whether pods of another runtime would be left behind by this unit's return to its own: k3s starts a
/// containerd of its own then. Other kubelets go back to the runtime that these pods are in.
pub(crate) fn leaves_pods_behind(root: &HostRoot, unit: &str) -> Result<bool, ProcessesError> {
    if !K3S_UNITS.contains(&unit) {
        return Ok(false);
    }
    let shims = processes::arguments(root, "containerd-shim")?;
    Ok(shims.iter().any(|arguments| !arguments.iter().any(|argument| argument.contains(K3S_CONTAINERD))))
}

/// Returns the socket of the running kubelet's runtime; `None` if no kubelet is found.
pub(crate) fn socket_in_use(root: &HostRoot) -> Result<Option<PathBuf>, KubeletError> {
    let Some(arguments) = processes::arguments(root, "kubelet")?.into_iter().next() else { return Ok(None) };
    let endpoint = match (flag(&arguments, FLAG), flag(&arguments, "--config")) {
        (Some(endpoint), _) => Some(endpoint),
        (None, Some(file)) => configured(&root.read(Path::new(&file), BYTES_MAX)?.unwrap_or_default()),
        (None, None) => None,
    };
    let endpoint = endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.into());
    Ok(Some(socket_of(&endpoint)))
}

/// The socket of a kubelet's endpoint, with or without its scheme.
pub(crate) fn socket_of(endpoint: &str) -> PathBuf {
    endpoint.strip_prefix("unix://").unwrap_or(endpoint).into()
}

/// The last value of a flag, as `--flag=value` or `--flag value`.
fn flag(arguments: &[String], name: &str) -> Option<String> {
    let mut found = None;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == name {
            found = rest.next().cloned();
        } else if let Some(value) = argument.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
            found = Some(value.to_owned());
        }
    }
    found
}

/// The runtime named in a KubeletConfiguration. An unreadable file names none.
fn configured(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Configuration {
        container_runtime_endpoint: Option<String>,
    }
    let configuration: Configuration = serde_saphyr::from_str(text).ok()?;
    configuration.container_runtime_endpoint.filter(|endpoint| !endpoint.is_empty())
}

/// The one command of a unit, from the output of `systemctl cat`: each file follows a line with its path. The
/// file `without` is skipped.
fn command(unit: &str, without: &Path) -> Option<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut ours = false;
    let mut lines = unit.lines();
    while let Some(line) = lines.next() {
        if let Some(path) = line.strip_prefix("# /") {
            ours = Path::new("/").join(path) == without;
        }
        let Some(value) = line.strip_prefix("ExecStart=").filter(|_| !ours) else { continue };
        if value.is_empty() {
            commands.clear();
            continue;
        }
        let mut whole = value.to_owned();
        while whole.ends_with('\\') {
            whole.pop();
            let next = lines.by_ref().find(|next| !next.trim_start().starts_with(['#', ';']));
            whole.push_str(next.unwrap_or_default().trim_start());
        }
        commands.push(whole.trim_end().to_owned());
    }
    <[String; 1]>::try_from(commands).ok().map(|[command]| command)
}

/// The file with the command that counts, from the output of `systemctl cat`: files come in the order in
/// which systemd applies them.
fn last_command_file(unit: &str) -> Option<String> {
    let (mut file, mut last) = (None, None);
    for line in unit.lines() {
        if let Some(path) = line.strip_prefix("# /") {
            file = Some(format!("/{path}"));
        } else if line.strip_prefix("ExecStart=").is_some_and(|command| !command.is_empty()) {
            last.clone_from(&file);
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBEADM: &str = "# /lib/systemd/system/kubelet.service\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n\n\
        # /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf\n# Note: a drop-in\n[Service]\n\
        Environment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\nExecStart=\n\
        ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS \\\n# in between\n    $KUBELET_EXTRA_ARGS\n";

    #[test]
    fn the_kubelets_command_is_the_last_one_without_the_file_of_this_program() {
        let ours = Path::new("/etc/systemd/system/kubelet.service.d/90-podvisor.conf");
        let expected = "/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_EXTRA_ARGS";
        assert_eq!(command(KUBEADM, ours).as_deref(), Some(expected));
        let switched = format!("{KUBEADM}\n# {}\n[Service]\nExecStart=\nExecStart=/x --y\n", ours.display());
        assert_eq!(command(&switched, ours).as_deref(), Some(expected));
        assert_eq!(command(&switched, Path::new("/else")).as_deref(), Some("/x --y"));
        for none in ["", "ExecStart=\n", "ExecStart=a\nExecStart=b\n"] {
            assert_eq!(command(none, ours), None, "{none:?}");
        }
    }

    #[test]
    fn the_command_that_counts_is_of_the_last_file_with_one() {
        let later = "# /etc/systemd/system/kubelet.service.d/override.conf\n[Service]\nExecStart=\n";
        let file = |text: &str| last_command_file(&format!("{KUBEADM}{text}")).unwrap();
        assert_eq!(file(later), "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf");
        let with_command = format!("{later}ExecStart=/usr/bin/kubelet\n");
        assert_eq!(file(&with_command), "/etc/systemd/system/kubelet.service.d/override.conf");
        assert_eq!(last_command_file(""), None);
    }

    #[test]
    fn the_last_flag_counts_and_a_configuration_where_there_is_none() {
        let arguments = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let line = arguments(
            "kubelet --container-runtime-endpoint=unix:///a --container-runtime-endpoint unix:///b",
        );
        assert_eq!(flag(&line, FLAG).as_deref(), Some("unix:///b"));
        assert_eq!(flag(&arguments("kubelet --config-dir=/x --config"), "--config"), None);
        assert_eq!(
            configured("kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///c\n").as_deref(),
            Some("unix:///c")
        );
        for none in ["containerRuntimeEndpoint: \"\"\n", "kind: x\n", "{", ""] {
            assert_eq!(configured(none), None, "{none:?}");
        }
    }
}
