//! Execs: from a container's specification and the host's request to a process with its namespaces and
//! cgroup. Pure; [`crate::builder`] makes the process.

use std::path::PathBuf;
use std::sync::Arc;

use oci_spec::runtime::{LinuxNamespace, LinuxNamespaceType, Process, Spec};
use proto_seccomp::Filter;
use serde::{Deserialize, Serialize};

use crate::spec::{SPEC_BYTES_MAX, SpecError};

/// Parts of a container's specification for execs. The agent keeps them for each container, because probes
/// make many execs.
#[derive(Clone, Debug)]
pub struct ExecTemplate {
    /// The container's own process.
    process: Process,
    namespaces: Vec<LinuxNamespaceType>,
    /// Path below the cgroup mount.
    cgroup: PathBuf,
    filter: Option<Arc<Filter>>,
}

/// One more process of a container, with its namespaces and cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// Pid of the container's first process in the agent's PID namespace. The exec joins its namespaces.
    pub first: i32,
    /// Kinds of namespaces to join: the container's own, and those shared with the pod.
    pub namespaces: Vec<LinuxNamespaceType>,
    /// The container's cgroup, as a path below the mount.
    pub cgroup: PathBuf,
    /// The process to run.
    pub process: Process,
}

/// The host's part of an exec. Everything else comes from the container.
#[derive(Debug, Deserialize)]
struct ExecRequest {
    args: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    cwd: Option<PathBuf>,
}

impl ExecTemplate {
    /// Takes the parts from this specification, made by [`crate::spec::container`], and the container's
    /// filter.
    pub fn of(spec: &Spec, filter: Option<Arc<Filter>>) -> Result<ExecTemplate, SpecError> {
        let linux = spec.linux().as_ref().ok_or(SpecError::Missing("linux part"))?;
        Ok(ExecTemplate {
            process: spec.process().clone().ok_or(SpecError::Missing("process"))?,
            namespaces: linux.namespaces().iter().flatten().map(LinuxNamespace::typ).collect(),
            cgroup: linux.cgroups_path().clone().ok_or(SpecError::Missing("cgroup"))?,
            filter,
        })
    }

    /// The container's system call filter. Its execs get it, too.
    pub fn filter(&self) -> Option<Arc<Filter>> {
        self.filter.clone()
    }

    /// Returns an exec into the process `first`: the container's own process with the arguments, variables
    /// and directory of the request. The request is JSON. An empty environment or directory means the
    /// container's.
    pub fn exec(&self, request: &[u8], first: i32, terminal: bool) -> Result<Exec, SpecError> {
        if request.len() > SPEC_BYTES_MAX {
            return Err(SpecError::TooLong(request.len()));
        }
        let request: ExecRequest = serde_json::from_slice(request).map_err(SpecError::Malformed)?;
        let mut process = self.process.clone();
        process.set_args(Some(request.args)).set_terminal(Some(terminal)).set_console_size(None);
        if !request.env.is_empty() {
            process.set_env(Some(request.env));
        }
        if let Some(cwd) = request.cwd.filter(|cwd| !cwd.as_os_str().is_empty()) {
            process.set_cwd(cwd);
        }
        Ok(Exec { first, namespaces: self.namespaces.clone(), cgroup: self.cgroup.clone(), process })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    fn container() -> Value {
        json!({
            "ociVersion": "1.1.0",
            "process": {
                "user": { "uid": 33, "gid": 33 }, "args": ["sh"], "env": ["A=1", "HOME=/srv"], "cwd": "/",
                "capabilities": { "bounding": ["CAP_CHOWN"], "effective": ["CAP_CHOWN"], "permitted": ["CAP_CHOWN"] }
            },
            "linux": { "cgroupsPath": "/pod/c1", "namespaces": [{ "type": "mount" }, { "type": "user" }] }
        })
    }

    fn exec(container: Value, request: &str, terminal: bool) -> Exec {
        let spec: Spec = serde_json::from_value(container).unwrap();
        ExecTemplate::of(&spec, None).unwrap().exec(request.as_bytes(), 7, terminal).unwrap()
    }

    #[test]
    fn an_exec_takes_the_containers_user_and_variables() {
        let process = exec(container(), r#"{"args":["id"],"cwd":""}"#, true).process;
        assert_eq!(process.user().uid(), 33);
        assert_eq!(process.env().as_deref(), Some(&["A=1".to_owned(), "HOME=/srv".to_owned()][..]));
        assert_eq!((process.cwd().as_path(), process.terminal()), (Path::new("/"), Some(true)));
    }

    #[test]
    fn an_exec_s_own_variables_replace_the_container_s() {
        let process = exec(container(), r#"{"args":["id"],"env":["B=2"]}"#, false).process;
        assert_eq!(process.env().as_deref(), Some(&["B=2".to_owned()][..]));
    }

    #[test]
    fn every_namespace_and_the_cgroup_are_joined() {
        let exec = exec(container(), r#"{"args":["id"]}"#, false);
        assert_eq!(exec.namespaces, [LinuxNamespaceType::Mount, LinuxNamespaceType::User]);
        assert_eq!((exec.first, exec.cgroup.as_path()), (7, Path::new("/pod/c1")));
    }

    #[test]
    fn a_container_without_a_process_or_a_cgroup_cannot_be_joined() {
        for pointer in ["process", "linux"] {
            let mut json = container();
            json.as_object_mut().unwrap().remove(pointer);
            let spec: Spec = serde_json::from_value(json).unwrap();
            assert!(matches!(ExecTemplate::of(&spec, None), Err(SpecError::Missing(_))), "{pointer}");
        }
    }
}
