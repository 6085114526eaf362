//! What we cannot do yet is refused here, by the field's name. Harmless values that the kubelet and
//! crictl always send pass.

use crate::{
    ContainerSecurity, ContainerSpec, NamespaceMode, Namespaces, PodSpec, Profile, SpecError, parse_signal,
};

/// Longest name of a pod or container: a DNS subdomain (RFC 1123).
const NAME_BYTES_MAX: usize = 253;

/// Longest host name that Linux takes (`__NEW_UTS_LEN`).
const HOSTNAME_BYTES_MAX: usize = 64;

impl PodSpec {
    /// Refuses what makes no sense and what we cannot do.
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
        cgroup_parent(&self.cgroup_parent)?;
        namespaces(&self.namespaces)?;
        apparmor(self.security.apparmor.as_ref())?;
        selinux(&self.security.selinux)
    }

    /// Whether the containers share one PID namespace.
    pub fn shares_pids(&self) -> bool {
        self.namespaces.pid == NamespaceMode::Pod
    }

    /// The host name inside the pod.
    pub fn effective_hostname(&self) -> &str {
        let name = if self.hostname.is_empty() { &self.name } else { &self.hostname };
        // A pod's name may be longer than Linux takes; cut where a character ends.
        let end = (0..=name.len().min(HOSTNAME_BYTES_MAX)).rev().find(|&i| name.is_char_boundary(i));
        name[..end.unwrap_or(0)].trim_end_matches(['.', '-'])
    }
}

impl ContainerSpec {
    /// Refuses what makes no sense and what we cannot do for a container of `pod`.
    pub fn check(&self, pod: &PodSpec) -> Result<(), SpecError> {
        name("metadata.name", &self.name)?;
        if self.image.is_empty() {
            return Err(SpecError::invalid("image", "is empty"));
        }
        self.check_host_parts()?;
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
        let score = self.resources.oom_score_adj;
        if !(-1000..=1000).contains(&score) {
            return Err(SpecError::invalid(
                "resources.oom_score_adj",
                format!("{score} is beyond -1000..=1000"),
            ));
        }
        if let Some(limit) = self.resources.hugepages.iter().find(|limit| limit.limit_bytes > 0) {
            let what = format!("huge pages of {} are", limit.page_size);
            return Err(SpecError::unsupported("resources.hugepage_limits", what));
        }
        if !(self.resources.cpuset_cpus.is_empty() && self.resources.cpuset_mems.is_empty()) {
            return Err(SpecError::unsupported(
                "resources.cpuset_cpus",
                "pinning to CPUs or memory of the node is",
            ));
        }
        self.security.check(pod)
    }

    fn check_host_parts(&self) -> Result<(), SpecError> {
        if let Some(mount) = self.mounts.first() {
            return Err(if mount.image.is_empty() {
                SpecError::unsupported("mounts", format!("mounts of host paths ({}) are", mount.host_path))
            } else {
                SpecError::unsupported("mounts.image", format!("image volumes ({}) are", mount.image))
            });
        }
        if let Some(device) = self.devices.first() {
            return Err(SpecError::unsupported(
                "devices",
                format!("host devices ({}) are", device.host_path),
            ));
        }
        if let Some(name) = self.cdi_devices.first() {
            return Err(SpecError::unsupported("CDI_devices", format!("CDI devices ({name}) are")));
        }
        Ok(())
    }
}

impl ContainerSecurity {
    fn check(&self, pod: &PodSpec) -> Result<(), SpecError> {
        if self.run_as_group.is_some() && self.run_as_user.is_none() && self.run_as_username.is_empty() {
            return Err(SpecError::invalid("security_context.run_as_group", "needs a user as well"));
        }
        for id in self.run_as_user.iter().chain(&self.run_as_group).chain(&self.supplemental_groups) {
            if u32::try_from(*id).is_err() {
                return Err(SpecError::invalid("security_context", format!("{id} is no user or group id")));
            }
        }
        if self.supplemental_groups_strict {
            let field = "security_context.supplemental_groups_policy";
            return Err(SpecError::unsupported(field, "the policy Strict is"));
        }
        if let Some(modes) = &self.namespaces {
            namespaces(modes)?;
            if modes.pid == NamespaceMode::Pod && !pod.shares_pids() {
                let field = "security_context.namespace_options.pid";
                return Err(SpecError::invalid(
                    field,
                    "is POD, but the pod was made without a PID namespace of its own",
                ));
            }
        }
        if let (Some(Profile::Localhost(path)), false) = (&self.seccomp, self.privileged) {
            let what = format!("localhost profiles ({path}) are");
            return Err(SpecError::unsupported("security_context.seccomp", what));
        }
        if !self.privileged {
            apparmor(self.apparmor.as_ref())?;
        }
        selinux(&self.selinux)?;
        for path in self.masked_paths.iter().chain(&self.readonly_paths).flatten() {
            if !path.starts_with('/') || path.contains('\0') {
                return Err(SpecError::invalid(
                    "security_context.masked_paths",
                    format!("{path:?} is not absolute"),
                ));
            }
        }
        crate::resolve::capabilities(self).map(drop)
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
    Ok(())
}

fn log_path(path: &str) -> Result<(), SpecError> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") || path.contains('\0') {
        return Err(SpecError::invalid("log_path", format!("{path:?} leads out of the pod's log directory")));
    }
    Ok(())
}

fn namespaces(modes: &Namespaces) -> Result<(), SpecError> {
    const NETWORK: &str = "security_context.namespace_options.network";
    const IPC: &str = "security_context.namespace_options.ipc";
    const PID: &str = "security_context.namespace_options.pid";
    const USER: &str = "security_context.namespace_options.userns_options";
    match modes.network {
        NamespaceMode::Pod => {}
        NamespaceMode::Node => return Err(SpecError::unsupported(NETWORK, "the node's network (NODE) is")),
        _ => return Err(SpecError::invalid(NETWORK, "must be POD or NODE")),
    }
    match modes.ipc {
        NamespaceMode::Pod => {}
        NamespaceMode::Node => return Err(SpecError::unsupported(IPC, "the node's IPC (NODE) is")),
        _ => return Err(SpecError::unsupported(IPC, "another namespace than the pod's is")),
    }
    if let NamespaceMode::Target(id) = &modes.pid {
        return Err(SpecError::unsupported(PID, format!("joining container {id} (TARGET) is")));
    }
    match modes.user {
        NamespaceMode::Node => Ok(()),
        NamespaceMode::Pod => Err(SpecError::unsupported(USER, "a user namespace (POD) is")),
        _ => Err(SpecError::invalid(USER, "must be POD or NODE")),
    }
}

fn apparmor(profile: Option<&Profile>) -> Result<(), SpecError> {
    match profile {
        Some(Profile::Localhost(name)) => Err(SpecError::unsupported(
            "security_context.apparmor",
            format!("localhost profiles ({name}) are"),
        )),
        _ => Ok(()),
    }
}

fn selinux(label: &str) -> Result<(), SpecError> {
    if label.trim_matches(':').is_empty() {
        return Ok(());
    }
    Err(SpecError::unsupported("security_context.selinux_options", format!("SELinux labels ({label}) are")))
}
