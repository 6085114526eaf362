//! Ends plugins left running by an ADD without an end: the daemon was killed meanwhile, and its successor
//! undoes the ADD. CNI forbids ADD and DEL at once for one container (specification 1.1.0, Lifecycle &
//! Ordering). A plugin ending its ADD after the DEL would keep an address for nobody.
//!
//! A plugin is known by its environment, from its first instruction on. This module never looks at processes
//! outside the daemon's own cgroup: plugins start there and stay there, and reading a foreign process's
//! environment may hang.

use std::{
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
pub(crate) fn end(netns: &Path) -> Result<(), NetError> {
    let deadline = Instant::now() + END_TIME_MAX;
    loop {
        let found = find(netns)?;
        for leftover in &found {
            let pid = leftover.pid.as_raw();
            tracing::info!(netns = %netns.display(), pid, "a CNI plugin is still in an ADD; killed");
            leftover.kill();
        }
        found.iter().try_for_each(|leftover| leftover.wait(deadline))?;
        // A process started during the look is found by the next one.
        if found.is_empty() {
            return Ok(());
        }
    }
}

fn find(netns: &Path) -> Result<Vec<Leftover>, NetError> {
    let failed = |path: &str| {
        let path = path.into();
        move |source| NetError::File { action: "read", path, source }
    };
    let variable = [b"CNI_NETNS=", netns.as_os_str().as_bytes()].concat();
    let own_cgroup = fs::read("/proc/self/cgroup").map_err(failed("/proc/self/cgroup"))?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").map_err(failed("/proc"))? {
        let name = entry.map_err(failed("/proc"))?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // Processes may end at any moment. The others are the node's own business.
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let is_plugin = || {
            read("cgroup") == own_cgroup
                && read("environ").split(|byte| *byte == 0).any(|part| part == variable)
        };
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

    fn plugin(netns: &str, line: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("CNI_NETNS", netns).process_group(0);
        command.stdout(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn plugins_of_the_pod_are_ended_with_their_children_and_others_go_on() {
        let netns = format!("/run/netns/{}", std::process::id());
        let mut other = plugin(&format!("{netns}0"), "exec sleep 1000");
        // The second child has another environment, and is found by its group.
        let mut plugin = plugin(&netns, "sleep 1000 & env -i sleep 1000 & echo started; wait");
        let mut output = plugin.stdout.take().unwrap();
        let mut started = [0; 8];
        io::Read::read_exact(&mut output, &mut started).unwrap();
        end(netns.as_ref()).unwrap();
        assert_eq!(plugin.wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
        // The pipe ends with its last holder.
        assert_eq!(io::copy(&mut output, &mut io::sink()).unwrap(), 0);
        assert!(other.try_wait().unwrap().is_none(), "another pod's plugin was ended");
        other.kill().unwrap();
        other.wait().unwrap();
        end(netns.as_ref()).unwrap();
    }
}
