//! Flags of `docker run` that `podvisor run` does not have, with the reasons. The table of docs/commands.md
//! has the same flags; a test compares them.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The flags, grouped by their reason.
const MISSING: &[(&[&str], &str)] = &[
    (&["--add-host"], "CRI has no entries for /etc/hosts; mount a file there with -v"),
    (
        &[
            "--blkio-weight",
            "--device-read-bps",
            "--device-write-bps",
            "--device-read-iops",
            "--device-write-iops",
        ],
        "CRI has no limits for disks",
    ),
    (&["--cgroup-parent", "--cgroupns"], "a container's cgroups are in its VM"),
    (&["--cidfile"], "-d prints the pod's id"),
    (&["--gpus"], "devices of the node's PCI bus cannot be passed to a VM yet"),
    (
        &["--health-cmd", "--health-interval", "--no-healthcheck"],
        "nothing here runs health checks; a kubelet has probes",
    ),
    (
        &["--ip", "--ip6", "--mac-address", "--network-alias", "--link"],
        "the CNI configuration gives addresses and names",
    ),
    (&["--ipc", "--pid", "--uts", "--userns"], "namespaces of the node are behind the VM"),
    (&["--isolation", "--runtime"], "--handler chooses the runtime handler"),
    (
        &["--kernel-memory", "--memory-swap", "--memory-swappiness", "--memory-reservation"],
        "a VM has no swap; use --memory",
    ),
    (&["--cpu-shares", "--cpu-period", "--cpu-quota", "--cpuset-cpus", "--cpuset-mems"], "use --cpus"),
    (&["--log-driver", "--log-opt"], "output goes to a CRI log file, for podvisor logs"),
    (&["--oom-kill-disable", "--oom-score-adj"], "the guest's kernel chooses by the memory limits"),
    (&["--restart"], "nothing here starts a container again; a kubelet or a systemd unit does"),
    (&["--security-opt"], "use --privileged, --cap-add and --cap-drop; profiles come from a kubelet"),
    (&["--shm-size"], "CRI has no size of /dev/shm; a pod has 64 MiB there"),
    (&["--stop-signal", "--stop-timeout"], "the image's stop signal is used, and then SIGKILL"),
    (&["--tmpfs"], "CRI has no mounts in memory; /dev/shm is one"),
    (&["--ulimit"], "CRI has no limits of processes; the program ulimit in the container lowers them"),
    (&["--volume-driver", "--volumes-from"], "there are no named volumes; use -v with a path of the node"),
];

/// The reason for a flag that is missing in `podvisor run`, if the error is about one.
pub(crate) fn reason(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = argument.split('=').next().unwrap_or_default();
    let (_, reason) = MISSING.iter().find(|(flags, _)| flags.contains(&flag))?;
    Some(format!("podvisor run has no {flag}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;

    fn error(arguments: &[&str]) -> clap::Error {
        use clap::Parser;
        Cli::try_parse_from(["podvisor"].iter().chain(arguments)).unwrap_err()
    }

    #[test]
    fn a_flag_of_docker_that_is_missing_has_its_reason() {
        for argument in ["--tmpfs", "--tmpfs=/run"] {
            let said = reason(&error(&["run", argument, "image"])).unwrap();
            assert_eq!(said, "podvisor run has no --tmpfs: CRI has no mounts in memory; /dev/shm is one");
        }
        assert_eq!(reason(&error(&["run", "--no-such", "image"])), None);
        assert_eq!(reason(&error(&["run"])), None);
    }

    #[test]
    fn every_missing_flag_is_really_missing_and_is_in_the_documents() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md")).unwrap();
        for flag in MISSING.iter().flat_map(|(flags, _)| *flags) {
            assert!(reason(&error(&["run", flag, "image"])).is_some(), "{flag} is there");
            assert!(page.contains(&format!("`{flag}`")), "{flag} is not in docs/commands.md");
        }
    }
}
