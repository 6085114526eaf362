//! The system call filter of a container's processes.

use std::sync::Arc;

use oci_spec::runtime::Spec;
use proto_agent::agent::CreateContainerRequest;
use proto_seccomp::{Filter, is_program_length};

use crate::containers::ContainerError;

/// Returns the filter compiled by the host. A daemon from before version
/// [`SYSCALL_FILTERS`](proto_agent::version::SYSCALL_FILTERS) sends rules instead. They are compiled here.
pub(super) fn of(
    request: &CreateContainerRequest,
    spec: &Spec,
) -> Result<Option<Arc<Filter>>, ContainerError> {
    let program = &request.syscall_filter;
    if program.is_empty() {
        let rules = spec.linux().as_ref().and_then(|linux| linux.seccomp().as_ref());
        return Ok(rules.map(Filter::compile).transpose()?.map(Arc::new));
    }
    if !is_program_length(program.len()) {
        return Err(ContainerError::FilterBytes(program.len()));
    }
    Ok(Some(Arc::new(Filter { program: program.clone(), flags: request.syscall_filter_flags })))
}

#[cfg(test)]
mod tests {
    use proto_seccomp::PROGRAM_BYTES_MAX;

    use super::*;

    /// Size of `struct sock_filter`.
    const INSTRUCTION_BYTES: usize = 8;

    fn rules() -> Spec {
        let json = serde_json::json!({ "ociVersion": "1.1.0", "linux": { "seccomp": { "defaultAction": "SCMP_ACT_ALLOW" } } });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_hosts_program_is_taken_as_it_is() {
        let program = vec![6; 2 * INSTRUCTION_BYTES];
        let request = CreateContainerRequest {
            syscall_filter: program.clone(),
            syscall_filter_flags: 4,
            ..CreateContainerRequest::default()
        };
        let filter = of(&request, &Spec::default()).unwrap().unwrap();
        assert_eq!(*filter, Filter { program, flags: 4 });
    }

    #[test]
    fn rules_of_an_older_daemon_are_compiled() {
        let request = CreateContainerRequest::default();
        assert!(!of(&request, &rules()).unwrap().unwrap().program.is_empty());
        assert!(of(&request, &Spec::default()).unwrap().is_none());
    }

    #[test]
    fn a_program_that_the_kernel_cannot_take_is_refused() {
        for bytes in [7, PROGRAM_BYTES_MAX + INSTRUCTION_BYTES] {
            let request = CreateContainerRequest {
                syscall_filter: vec![0; bytes],
                ..CreateContainerRequest::default()
            };
            assert!(matches!(of(&request, &rules()), Err(ContainerError::FilterBytes(_))), "{bytes}");
        }
    }
}
