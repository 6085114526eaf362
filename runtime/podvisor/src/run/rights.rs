//! The rights of the container of `podvisor run`.

use proto_cri::v1;
use runtime_spec::{MASKED_PATHS, READONLY_PATHS};

/// Arguments for rights.
#[derive(Debug, clap::Args)]
pub(super) struct RightsArgs {
    /// Give the container all rights and devices of its VM. The node stays behind the VM.
    #[arg(long)]
    privileged: bool,
    /// Capability to add, or ALL. May be repeated.
    #[arg(long, value_name = "CAPABILITY", value_parser = parse_capability)]
    cap_add: Vec<String>,
    /// Capability to take away, or ALL. May be repeated.
    #[arg(long, value_name = "CAPABILITY", value_parser = parse_capability)]
    cap_drop: Vec<String>,
    /// Make the container's root file system read-only.
    #[arg(long)]
    read_only: bool,
}

impl RightsArgs {
    pub(super) fn privileged(&self) -> bool {
        self.privileged
    }

    /// The container's rights, without its user.
    pub(super) fn context(&self) -> v1::LinuxContainerSecurityContext {
        let bounds = if self.privileged { v1::LinuxContainerSecurityContext::default() } else { confined() };
        v1::LinuxContainerSecurityContext {
            privileged: self.privileged,
            capabilities: Some(v1::Capability {
                add_capabilities: self.cap_add.clone(),
                drop_capabilities: self.cap_drop.clone(),
                ..Default::default()
            }),
            readonly_rootfs: self.read_only,
            ..bounds
        }
    }
}

/// The bounds of a container as a kubelet sets them: RuntimeDefault's filter, and paths of the kernel.
pub(crate) fn confined() -> v1::LinuxContainerSecurityContext {
    let paths = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect();
    v1::LinuxContainerSecurityContext {
        seccomp: Some(v1::SecurityProfile::default()),
        masked_paths: paths(&MASKED_PATHS),
        readonly_paths: paths(&READONLY_PATHS),
        ..Default::default()
    }
}

/// CRI has no prefix, as Kubernetes.
fn parse_capability(text: &str) -> Result<String, String> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("CAP_").unwrap_or(&name);
    if name.is_empty() { Err("a capability is a name such as NET_ADMIN".into()) } else { Ok(name.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::parsed;

    #[test]
    fn capabilities_are_written_in_every_way_that_docker_takes() {
        let args = ["--cap-add", "net_admin", "--cap-add", "CAP_SYS_TIME", "--cap-drop", "all", "image"];
        let capabilities = parsed(&args).unwrap().rights.context().capabilities.unwrap();
        assert_eq!(capabilities.add_capabilities, ["NET_ADMIN", "SYS_TIME"]);
        assert_eq!(capabilities.drop_capabilities, ["ALL"]);
        assert!(parsed(&["--cap-add", "CAP_", "image"]).is_err());
    }

    #[test]
    fn a_privileged_container_has_no_masked_path_and_no_filter() {
        let context = parsed(&["--privileged", "--read-only", "image"]).unwrap().rights.context();
        assert!(context.privileged && context.readonly_rootfs && context.seccomp.is_none());
        assert!(context.masked_paths.is_empty() && context.readonly_paths.is_empty());
        let context = parsed(&["image"]).unwrap().rights.context();
        assert!(!context.privileged && context.seccomp.is_some() && !context.masked_paths.is_empty());
    }
}
