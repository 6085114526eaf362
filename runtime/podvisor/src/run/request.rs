//! The pod and the container of `podvisor run`, as CRI has them.

use std::path::Path;

use proto_cri::v1;
use runtime_spec::STOP_WITH_CONTAINERS;

use super::args::Args;
use super::pod_network::NodeNames;
use super::published;
use crate::show::out;

/// Namespace of the pods of `podvisor run`.
pub(crate) const NAMESPACE: &str = "podvisor-run";

/// Name of the pod's container.
const CONTAINER: &str = "main";

/// Name of the container's log file.
pub(super) const LOG: &str = "main.log";

/// The pod's configuration. Its log directory is `logs`.
///
/// # Errors
/// The node's name servers are needed and cannot be read.
pub(super) fn pod(args: &Args, name: &str, logs: &Path) -> anyhow::Result<v1::PodSandboxConfig> {
    let node = NodeNames::of_this_node();
    let dns_config = args.network.dns(node)?;
    if dns_config.is_none()
        && let Some(warning) = node.warning()
    {
        out::complain(warning);
    }
    let ports = args.network.port_mappings();
    Ok(v1::PodSandboxConfig {
        metadata: Some(pod_metadata(name, NAMESPACE)),
        hostname: args.network.hostname(name),
        log_directory: logs.display().to_string(),
        dns_config,
        port_mappings: ports.clone(),
        labels: args.labels(),
        // Nobody may be left to stop it: not with -d, nor after the detach keys.
        annotations: std::iter::once((STOP_WITH_CONTAINERS.to_owned(), "true".to_owned()))
            .chain(published::annotation(&ports))
            .collect(),
        linux: Some(v1::LinuxPodSandboxConfig {
            resources: args.limits.resources(),
            sysctls: args.network.sysctls(),
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(args.process.pid_namespace())),
                privileged: args.rights.privileged(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// The container's configuration, of the image with this id.
///
/// # Errors
/// A file or directory of the node cannot be used.
pub(super) fn container(args: &Args, image: String) -> anyhow::Result<v1::ContainerConfig> {
    let (command, arguments) = args.process.command(&args.command)?;
    let mut rights = args.rights.context();
    args.process.apply_user(&mut rights);
    rights.namespace_options = Some(namespaces(args.process.pid_namespace()));
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: CONTAINER.into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image, user_specified_image: args.image.clone(), ..Default::default() }),
        command,
        args: arguments,
        working_dir: args.process.working_dir(),
        envs: args.process.envs(|name| std::env::var_os(name))?,
        mounts: args.storage.mounts()?,
        devices: args.storage.devices(),
        labels: args.labels(),
        stdin: args.interactive,
        // A user may detach from a terminal and attach again later.
        stdin_once: args.interactive && !args.tty,
        tty: args.tty,
        log_path: LOG.into(),
        linux: Some(v1::LinuxContainerConfig {
            resources: args.limits.resources(),
            security_context: Some(rights),
        }),
        ..Default::default()
    })
}

/// A pod of this name, with a uid of its own.
pub(crate) fn pod_metadata(name: &str, namespace: &str) -> v1::PodSandboxMetadata {
    v1::PodSandboxMetadata {
        uid: format!("{name}-{}", uuid::Uuid::new_v4()),
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        attempt: 0,
    }
}

/// Returns the pod's namespaces, with this one for processes.
pub(crate) fn namespaces(pid: v1::NamespaceMode) -> v1::NamespaceOption {
    v1::NamespaceOption { pid: pid.into(), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::parsed;
    use super::*;

    #[test]
    fn pod_and_container_of_plain_arguments_are_as_a_kubelets() {
        let args = parsed(&["image", "echo", "-n", "x"]).unwrap();
        let pod = pod(&args, "run-1", Path::new("/logs")).unwrap();
        assert_eq!(pod.annotations["podvisor.io/stop-with-containers"], "true");
        let metadata = pod.metadata.unwrap();
        assert_eq!((metadata.name.as_str(), metadata.namespace.as_str()), ("run-1", NAMESPACE));
        assert_eq!((pod.hostname.as_str(), pod.log_directory.as_str()), ("run-1", "/logs"));
        let container = container(&args, "sha256:1".into()).unwrap();
        assert_eq!(container.args, ["echo", "-n", "x"]);
        let image = container.image.unwrap();
        assert_eq!((image.image.as_str(), image.user_specified_image.as_str()), ("sha256:1", "image"));
        let context = container.linux.unwrap().security_context.unwrap();
        assert_eq!(context.namespace_options.unwrap().pid(), v1::NamespaceMode::Container);
    }

    #[test]
    fn an_init_and_privileges_are_of_pod_and_container() {
        let args = parsed(&["--init", "--privileged", "image"]).unwrap();
        let sandbox = pod(&args, "x", Path::new("/")).unwrap().linux.unwrap().security_context.unwrap();
        let container = container(&args, String::new()).unwrap().linux.unwrap().security_context.unwrap();
        assert!(sandbox.privileged && container.privileged);
        for namespaces in [sandbox.namespace_options, container.namespace_options] {
            assert_eq!(namespaces.unwrap().pid(), v1::NamespaceMode::Pod);
        }
    }
}
