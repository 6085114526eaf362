//! Ends plugins left running by a killed daemon. Its successor undoes an ADD without an end. CNI forbids ADD
//! and DEL at once for one container (specification 1.1.0, Lifecycle & Ordering). A plugin ending its ADD
//! after the DEL would keep an address for nobody. A plugin still in GC knows no pod started since, and would
//! free its address.
//!
//! A plugin is known by its environment, from its first instruction on. This module never looks at processes
//! outside the daemon's own cgroup: plugins start there and stay there, and reading a foreign process's
//! environment may hang.

use std::{
    ffi::OsStr,
    fs, io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::{Pid, getpgid, getpgrp},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::retry_on_intr,
    process::{PidfdFlags, pidfd_open},
};

use crate::NetError;

/// Most time for killed processes to end. A process may be in a system call that cannot be interrupted.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// A plugin's process.
struct Leftover {
    pid: Pid,
    group: Pid,
    /// Readable once the process has ended.
    descriptor: OwnedFd,
}

/// Ends the plugins that run for the pod with this namespace, with their process groups, and waits for their
/// end. Blocks meanwhile.
///
/// # Errors
/// `/proc` is unreadable, or a process does not end.
pub(crate) fn end_add(netns: &Path) -> Result<(), NetError> {
    end(&[variable("CNI_NETNS", netns.as_os_str())])
}

/// Ends the plugins that clean up, called with this path of plugins. As [`end_add`].
///
/// # Errors
/// `/proc` is unreadable, or a process does not end.
pub(crate) fn end_gc(path: &OsStr) -> Result<(), NetError> {
    end(&[variable("CNI_COMMAND", "GC".as_ref()), variable("CNI_PATH", path)])
}

/// A variable as in a process's environment.
fn variable(name: &str, value: &OsStr) -> Vec<u8> {
    [name.as_bytes(), b"=", value.as_bytes()].concat()
}

/// Ends the plugins with all of these variables.
fn end(variables: &[Vec<u8>]) -> Result<(), NetError> {
    let deadline = Instant::now() + END_TIME_MAX;
    loop {
        let found = find(variables)?;
        for leftover in &found {
            let variables: Vec<_> = variables.iter().map(|one| String::from_utf8_lossy(one)).collect();
            let (pid, of) = (leftover.pid.as_raw(), variables.join(" "));
            tracing::info!(of, pid, "a CNI plugin of an earlier daemon still runs; killed");
            leftover.kill();
        }
        found.iter().try_for_each(|leftover| leftover.wait(deadline))?;
        // A process started during the look is found by the next one.
        if found.is_empty() {
            return Ok(());
        }
    }
}

fn find(variables: &[Vec<u8>]) -> Result<Vec<Leftover>, NetError> {
    let failed = |path: &str| {
        let path = path.into();
        move |source| NetError::File { action: "read", path, source }
    };
    let own_cgroup = fs::read("/proc/self/cgroup").map_err(failed("/proc/self/cgroup"))?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").map_err(failed("/proc"))? {
        let name = entry.map_err(failed("/proc"))?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // Processes may end at any moment. The others are the node's own business.
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let has_variables = || {
            let environment = read("environ");
            let has = |wanted: &Vec<u8>| environment.split(|byte| *byte == 0).any(|part| part == wanted);
            variables.iter().all(has)
        };
        let is_plugin = || read("cgroup") == own_cgroup && has_variables();
        if is_plugin()
            && let Some(leftover) = Leftover::of(pid)
            && is_plugin()
        {
            found.push(leftover);
        }
    }
    Ok(found)
}

impl Leftover {
    fn of(pid: i32) -> Option<Leftover> {
        let descriptor = pidfd_open(rustix::process::Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let pid = Pid::from_raw(pid);
        Some(Leftover { pid, group: getpgid(Some(pid)).ok()?, descriptor })
    }

    fn kill(&self) {
        let Leftover { pid, group, .. } = *self;
        // A process already gone needs no signal.
        let _ = if group == getpgrp() { kill(pid, Signal::SIGKILL) } else { killpg(group, Signal::SIGKILL) };
    }

    fn wait(&self, deadline: Instant) -> Result<(), NetError> {
        let failed = |source: io::Error| NetError::Leftover { pid: self.pid.as_raw(), source };
        let ended = || {
            let left = deadline.saturating_duration_since(Instant::now());
            poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], left.try_into().ok().as_ref())
        };
        match retry_on_intr(ended).map_err(|errno| failed(errno.into()))? {
            0 => Err(failed(io::Error::other(format!("killed, and still there after {END_TIME_MAX:?}")))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn plugin(environment: &[(&str, &str)], line: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", line]).envs(environment.iter().copied()).process_group(0);
        command.stdout(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn plugins_of_the_pod_are_ended_with_their_children_and_others_go_on() {
        let netns = format!("/run/netns/{}", std::process::id());
        let mut other = plugin(&[("CNI_NETNS", &format!("{netns}0"))], "exec sleep 1000");
        // The second child has another environment, and is found by its group.
        let mut plugin =
            plugin(&[("CNI_NETNS", &netns)], "sleep 1000 & env -i sleep 1000 & echo started; wait");
        let mut output = plugin.stdout.take().unwrap();
        let mut started = [0; 8];
        io::Read::read_exact(&mut output, &mut started).unwrap();
        end_add(netns.as_ref()).unwrap();
        assert_eq!(plugin.wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
        // The pipe ends with its last holder.
        assert_eq!(io::copy(&mut output, &mut io::sink()).unwrap(), 0);
        assert!(other.try_wait().unwrap().is_none(), "another pod's plugin was ended");
        other.kill().unwrap();
        other.wait().unwrap();
        end_add(netns.as_ref()).unwrap();
    }

    #[test]
    fn only_plugins_that_clean_up_for_the_same_daemon_are_ended_with_a_cleaning() {
        let path = format!("/opt/{}/bin", std::process::id());
        let of = |command: &str, path: &str| {
            plugin(&[("CNI_COMMAND", command), ("CNI_PATH", path)], "exec sleep 1000")
        };
        let mut others = [of("ADD", &path), of("GC", "/opt/other/bin")];
        let mut cleaning = of("GC", &path);
        end_gc(path.as_ref()).unwrap();
        assert_eq!(cleaning.wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
        for other in &mut others {
            assert!(other.try_wait().unwrap().is_none(), "it does not clean up, or not for this daemon");
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }
}
