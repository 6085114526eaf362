//! Pods and containers like a kubelet's requests, with the test's values set by name.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use proto_cri::v1;

/// Returns a pod to request, with its own name and uid, and logs under `logs`.
pub fn pod(name: &str, logs: &Path) -> v1::PodSandboxConfig {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let uid = format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.into(),
            namespace: "e2e".into(),
            uid: uid.clone(),
            attempt: 0,
        }),
        hostname: name.into(),
        log_directory: logs.join(uid).display().to_string(),
        linux: Some(v1::LinuxPodSandboxConfig {
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(own_pids()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Returns a pod like [`pod`]'s, but its containers may be privileged.
pub fn privileged_pod(name: &str, logs: &Path) -> v1::PodSandboxConfig {
    let mut config = pod(name, logs);
    config.linux.get_or_insert_default().security_context.get_or_insert_default().privileged = true;
    config
}

/// Returns a container to request, with `command` in place of the image's and its own log file.
pub fn container(name: &str, image: &str, command: &[&str]) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: image.into(), ..Default::default() }),
        command: command.iter().map(ToString::to_string).collect(),
        log_path: format!("{name}.log"),
        linux: Some(v1::LinuxContainerConfig {
            resources: None,
            security_context: Some(v1::LinuxContainerSecurityContext {
                namespace_options: Some(own_pids()),
                ..Default::default()
            }),
        }),
        ..Default::default()
    }
}

/// Makes a container privileged. Its pod must be one of [`privileged_pod`].
pub fn privileged(mut config: v1::ContainerConfig) -> v1::ContainerConfig {
    config.linux.get_or_insert_default().security_context.get_or_insert_default().privileged = true;
    config
}

/// Runs a container as this user and group.
pub fn with_user(mut config: v1::ContainerConfig, user: i64, group: i64) -> v1::ContainerConfig {
    let context = config.linux.get_or_insert_default().security_context.get_or_insert_default();
    context.run_as_user = Some(v1::Int64Value { value: user });
    context.run_as_group = Some(v1::Int64Value { value: group });
    config
}

/// Puts a container under the default seccomp profile, as Kubernetes' restricted pods are.
pub fn confined(mut config: v1::ContainerConfig) -> v1::ContainerConfig {
    let profile_type = v1::security_profile::ProfileType::RuntimeDefault.into();
    let profile = v1::SecurityProfile { profile_type, ..Default::default() };
    config.linux.get_or_insert_default().security_context.get_or_insert_default().seccomp = Some(profile);
    config
}

/// A container running a line of shell.
pub fn shell(name: &str, image: &str, line: &str) -> v1::ContainerConfig {
    container(name, image, &["sh", "-c", line])
}

/// Sets a container's memory limit.
pub fn with_memory(mut config: v1::ContainerConfig, bytes: i64) -> v1::ContainerConfig {
    let linux = config.linux.get_or_insert_default();
    linux.resources.get_or_insert_default().memory_limit_in_bytes = bytes;
    config
}

fn own_pids() -> v1::NamespaceOption {
    v1::NamespaceOption { pid: v1::NamespaceMode::Container.into(), ..Default::default() }
}
