//! Refuses invalid specs, and requests unsupported by this runtime, by the field's name. Harmless values
//! always sent by the kubelet and crictl pass.

mod devices;
mod mounts;
mod process_limits;

use crate::{
    Bandwidth, ContainerSpec, LayerLimits, NamespaceMode, PodSpec, SpecError, check_security, parse_signal,
    stop_with_containers,
};

/// Longest name of a pod or container: a DNS subdomain (RFC 1123).
const NAME_BYTES_MAX: usize = 253;

/// Longest host name in Linux (`__NEW_UTS_LEN`).
const HOSTNAME_BYTES_MAX: usize = 64;

impl PodSpec {
    /// Refuses an invalid or unsupported spec.
    pub fn check(&self) -> Result<(), SpecError> {
        name("metadata.name", &self.name)?;
        name("metadata.namespace", &self.namespace)?;
        name("metadata.uid", &self.uid)?;
        if self.hostname.len() > HOSTNAME_BYTES_MAX {
            let reason = format!("{} bytes, at most {HOSTNAME_BYTES_MAX} are possible", self.hostname.len());
            return Err(SpecError::invalid("hostname", reason));
        }
        if self.hostname.contains(['/', '\0', '\n', ' ']) {
            return Err(SpecError::invalid("hostname", format!("{:?} is no host name", self.hostname)));
        }
        if let Some(directory) = &self.log_directory
            && !directory.is_absolute()
        {
            return Err(SpecError::invalid("log_directory", format!("{} is relative", directory.display())));
        }
        if let Some(dns) = &self.dns {
            let lines = [&dns.servers, &dns.searches, &dns.options];
            if lines.into_iter().flatten().any(|word| word.contains(['\n', '\0'])) {
                return Err(SpecError::invalid("dns_config", "an entry holds a line break"));
            }
        }
        sysctls(self)?;
        Bandwidth::of(&self.annotations)?;
        LayerLimits::of(&self.annotations, None)?;
        stop_with_containers::check(&self.annotations)?;
        cgroup_parent(&self.cgroup_parent)?;
        check_security::pod(self)
    }

    /// Returns true if the containers share one PID namespace.
    pub fn shares_pids(&self) -> bool {
        self.namespaces.pid == NamespaceMode::Pod
    }

    /// The host name inside the pod.
    pub fn effective_hostname(&self) -> &str {
        let name = if self.hostname.is_empty() { &self.name } else { &self.hostname };
        // A pod's name may be longer than Linux allows. It is cut between characters.
        let end = (0..=name.len().min(HOSTNAME_BYTES_MAX)).rev().find(|&i| name.is_char_boundary(i));
        name[..end.unwrap_or(0)].trim_end_matches(['.', '-'])
    }
}

impl ContainerSpec {
    /// Refuses an invalid or unsupported container of `pod`.
    pub fn check(&self, pod: &PodSpec) -> Result<(), SpecError> {
        name("metadata.name", &self.name)?;
        if self.image.is_empty() {
            return Err(SpecError::invalid("image", "is empty"));
        }
        self.check_host_parts(pod)?;
        if self
            .env
            .iter()
            .any(|(key, value)| key.is_empty() || key.contains(['=', '\0']) || value.contains('\0'))
        {
            return Err(SpecError::invalid(
                "envs",
                "a name is empty or holds '=', or an entry holds a NUL byte",
            ));
        }
        let words = self.command.iter().chain(&self.args).chain([&self.working_dir]);
        if words.into_iter().any(|word| word.contains('\0')) {
            return Err(SpecError::invalid("command", "a word holds a NUL byte"));
        }
        if !self.working_dir.is_empty() && !self.working_dir.starts_with('/') {
            return Err(SpecError::invalid("working_dir", format!("{:?} is relative", self.working_dir)));
        }
        if let Some(path) = &self.log_path {
            log_path(path)?;
        }
        if let Some(signal) = &self.stop_signal {
            parse_signal(signal)?;
        }
        self.resources.check()?;
        process_limits::check(&self.process_limits)?;
        check_security::container(self, pod)
    }

    fn check_host_parts(&self, pod: &PodSpec) -> Result<(), SpecError> {
        mounts::check(&self.mounts, &self.tmpfs, pod)?;
        devices::check(&self.devices, pod)
    }
}

fn name(field: &'static str, value: &str) -> Result<(), SpecError> {
    if value.is_empty() {
        return Err(SpecError::invalid(field, "is empty"));
    }
    if value.len() > NAME_BYTES_MAX {
        return Err(SpecError::invalid(field, format!("is longer than {NAME_BYTES_MAX} bytes")));
    }
    if value.contains(['/', '\0', '\n']) {
        return Err(SpecError::invalid(
            field,
            format!("{value:?} holds a slash, a line break or a NUL byte"),
        ));
    }
    Ok(())
}

fn sysctls(pod: &PodSpec) -> Result<(), SpecError> {
    let odd = |text: &str| {
        text.is_empty() || text.contains("..") || text.contains(['\0', '\n']) || text.starts_with('/')
    };
    match pod.sysctls.iter().find(|(key, value)| odd(key) || value.contains(['\0', '\n'])) {
        Some((key, _)) => Err(SpecError::invalid("sysctls", format!("{key:?} is no kernel setting"))),
        None => Ok(()),
    }
}

fn cgroup_parent(path: &str) -> Result<(), SpecError> {
    if path.split('/').any(|part| part == "..") || path.contains('\0') {
        return Err(SpecError::invalid("cgroup_parent", format!("{path:?} leads upwards")));
    }
    // A slice's name gives its place, so the name must be valid (systemd.slice(5)).
    let name = path.trim_matches('/').rsplit('/').next().and_then(|last| last.strip_suffix(".slice"));
    match name {
        Some(name) if name != "-" && name.split('-').any(str::is_empty) => {
            Err(SpecError::invalid("cgroup_parent", format!("{path:?} is no name of a slice")))
        }
        _ => Ok(()),
    }
}

fn log_path(path: &str) -> Result<(), SpecError> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") || path.contains('\0') {
        return Err(SpecError::invalid("log_path", format!("{path:?} leads out of the pod's log directory")));
    }
    Ok(())
}
