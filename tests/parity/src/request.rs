//! A case as CRI requests, as a kubelet words them. Pure but for the file of a seccomp profile.

use std::path::Path;

use anyhow::{Context, Result, bail};
use proto_cri::v1;
use proto_cri::v1::security_profile::ProfileType;

use crate::case::{Case, Limits, Mount, Pod, Security};
use crate::sources::Sources;

const MIB: i64 = 1 << 20;

/// Paths masked by a kubelet unless the pod has `procMount: Unmasked`.
const MASKED: [&str; 11] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// Paths read-only by a kubelet unless the pod has `procMount: Unmasked`.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The pod to ask for.
pub(crate) fn pod(pod: &Pod, uid: &str, logs: &Path) -> v1::PodSandboxConfig {
    let named = |value| Some(v1::Int64Value { value });
    let dns = v1::DnsConfig {
        servers: pod.dns_servers.clone(),
        searches: pod.dns_searches.clone(),
        options: pod.dns_options.clone(),
    };
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "parity".into(),
            namespace: "parity".into(),
            uid: uid.into(),
            attempt: 0,
        }),
        hostname: pod.hostname.clone().unwrap_or_else(|| "parity".into()),
        log_directory: logs.display().to_string(),
        dns_config: Some(dns),
        annotations: pod.annotations.clone(),
        linux: Some(v1::LinuxPodSandboxConfig {
            sysctls: pod.sysctls.clone(),
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(pod)),
                run_as_user: pod.uid.and_then(named),
                run_as_group: pod.gid.and_then(named),
                supplemental_groups: pod.groups.clone(),
                privileged: pod.privileged,
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn namespaces(pod: &Pod) -> v1::NamespaceOption {
    let pid = if pod.shared_pids { v1::NamespaceMode::Pod } else { v1::NamespaceMode::Container };
    v1::NamespaceOption { pid: pid.into(), ..Default::default() }
}

/// The container to ask for. `dir` is the run's own.
///
/// # Errors
/// If the case names something missing.
pub(crate) fn container(
    case: &Case,
    image: &str,
    sources: &Sources,
    dir: &Path,
) -> Result<v1::ContainerConfig> {
    let mounts = case.mounts.iter().zip(sources.paths());
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: image.into(), ..Default::default() }),
        command: command(case),
        args: case.args.clone(),
        working_dir: case.cwd.clone(),
        envs: case.env.iter().map(|pair| variable(pair)).collect(),
        mounts: mounts.map(|(mount, path)| mounted(mount, path)).collect::<Result<_>>()?,
        devices: case.devices.iter().map(|text| device(text)).collect(),
        log_path: "main.log".into(),
        tty: case.tty,
        stdin: case.stdin,
        stop_signal: case.stop_signal,
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(resources(&case.limits)),
            security_context: Some(security(&case.security, &case.pod, dir)?),
        }),
        ..Default::default()
    })
}

/// The command's words. A case with commands and none for the container has it wait for them.
fn command(case: &Case) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
    match (&case.sh, &case.command) {
        (Some(line), _) => words(&["sh", "-c", line]),
        (None, Some(command)) => command.clone(),
        (None, None) if case.exec.is_empty() && case.exec_words.is_empty() => Vec::new(),
        (None, None) => words(&["sleep", "1000000"]),
    }
}

fn variable(pair: &str) -> v1::KeyValue {
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    v1::KeyValue { key: key.into(), value: value.into() }
}

fn mounted(mount: &Mount, path: &Path) -> Result<v1::Mount> {
    let propagation = match mount.propagation.as_str() {
        "" => v1::MountPropagation::PropagationPrivate,
        "host-to-container" => v1::MountPropagation::PropagationHostToContainer,
        "bidirectional" => v1::MountPropagation::PropagationBidirectional,
        other => bail!("unknown propagation {other:?}"),
    };
    Ok(v1::Mount {
        container_path: mount.to.clone(),
        host_path: path.display().to_string(),
        readonly: mount.read_only || mount.recursive_read_only,
        recursive_read_only: mount.recursive_read_only,
        propagation: propagation.into(),
        ..Default::default()
    })
}

fn device(text: &str) -> v1::Device {
    let mut parts = text.split(':');
    let host_path = parts.next().unwrap_or_default().to_owned();
    let container_path = parts.next().map_or_else(|| host_path.clone(), str::to_owned);
    let permissions = parts.next().unwrap_or("rwm").to_owned();
    v1::Device { container_path, host_path, permissions }
}

fn resources(limits: &Limits) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_period: limits.cpu_period,
        cpu_quota: limits.cpu_quota,
        cpu_shares: limits.cpu_shares,
        memory_limit_in_bytes: limits.memory_mib * MIB,
        memory_swap_limit_in_bytes: limits.swap_mib * MIB,
        oom_score_adj: limits.oom_score_adj,
        cpuset_cpus: limits.cpuset.clone(),
        unified: limits.unified.clone(),
        ..Default::default()
    }
}

fn security(security: &Security, pod: &Pod, dir: &Path) -> Result<v1::LinuxContainerSecurityContext> {
    let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
    let usual = |paths: &[&str]| match security.unmasked || security.privileged {
        true => Vec::new(),
        false => texts(paths),
    };
    let named = |value| Some(v1::Int64Value { value });
    let capabilities = (!security.add.is_empty() || !security.drop.is_empty()).then(|| v1::Capability {
        add_capabilities: security.add.clone(),
        drop_capabilities: security.drop.clone(),
        ..Default::default()
    });
    let policy = match security.strict_groups {
        true => v1::SupplementalGroupsPolicy::Strict,
        false => v1::SupplementalGroupsPolicy::Merge,
    };
    Ok(v1::LinuxContainerSecurityContext {
        capabilities,
        privileged: security.privileged,
        namespace_options: Some(namespaces(pod)),
        run_as_user: security.uid.and_then(named),
        run_as_group: security.gid.and_then(named),
        run_as_username: security.username.clone(),
        readonly_rootfs: security.read_only,
        supplemental_groups: security.groups.clone(),
        supplemental_groups_policy: policy.into(),
        no_new_privs: security.no_new_privs,
        masked_paths: security.masked.clone().unwrap_or_else(|| usual(&MASKED)),
        readonly_paths: security.read_only_paths.clone().unwrap_or_else(|| usual(&READ_ONLY)),
        seccomp: Some(seccomp(&security.seccomp, dir)?),
        ..Default::default()
    })
}

fn seccomp(profile: &str, dir: &Path) -> Result<v1::SecurityProfile> {
    let of = |kind: ProfileType, localhost_ref: String| v1::SecurityProfile {
        profile_type: kind.into(),
        localhost_ref,
    };
    Ok(match profile {
        "" => of(ProfileType::Unconfined, String::new()),
        "default" => of(ProfileType::RuntimeDefault, String::new()),
        json => {
            let path = dir.join("seccomp.json");
            std::fs::write(&path, json).context("writing the seccomp profile")?;
            of(ProfileType::Localhost, path.display().to_string())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_ends_its_name_at_the_first_equals_sign() {
        let pair = |text| {
            let variable = variable(text);
            (variable.key, variable.value)
        };
        assert_eq!(pair("A=b=c"), ("A".into(), "b=c".into()));
        assert_eq!(pair("A"), ("A".into(), Vec::new()));
        assert_eq!(pair("A="), ("A".into(), Vec::new()));
    }

    #[test]
    fn a_device_has_its_own_path_and_all_permissions_unless_it_says_otherwise() {
        let all = device("/dev/fuse");
        assert_eq!((all.container_path.as_str(), all.permissions.as_str()), ("/dev/fuse", "rwm"));
        let other = device("/dev/null:/dev/nothing:r");
        assert_eq!((other.container_path.as_str(), other.permissions.as_str()), ("/dev/nothing", "r"));
    }
}
