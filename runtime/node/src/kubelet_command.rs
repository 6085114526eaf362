//! How a kubelet is started: its arguments, its configuration, and the command in its unit. Pure functions
//! over texts.

use std::path::Path;

use serde::Deserialize;

/// The last value of a flag, as `--flag=value` or `--flag value`.
pub(crate) fn flag(arguments: &[String], name: &str) -> Option<String> {
    flags(arguments, name).pop()
}

/// All values of a flag, in their order.
pub(crate) fn flags(arguments: &[String], name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == name {
            found.extend(rest.next().cloned());
        } else if let Some(value) = argument.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
            found.push(value.to_owned());
        }
    }
    found
}

/// The runtime named in a KubeletConfiguration. An unreadable file names none.
pub(crate) fn configured(text: &str) -> Option<String> {
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
pub(crate) fn command(unit: &str, without: &Path) -> Option<String> {
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
pub(crate) fn last_command_file(unit: &str) -> Option<String> {
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
        assert_eq!(flag(&line, "--container-runtime-endpoint").as_deref(), Some("unix:///b"));
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
