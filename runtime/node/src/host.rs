//! Programs run on the node instead of in the container: above all systemctl. A program's root is the node's,
//! so it sees the node's files and systemd. The container shares the node's process IDs; systemd does not
//! answer without them.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal};

/// The search path for programs on the node.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long a program may take. systemd itself allows the daemon five minutes to start, and a check of the
/// node boots a guest.
const LIMIT: Duration = Duration::from_secs(900);

/// Most bytes kept of a program's output.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// The node's programs.
pub trait Host {
    /// Runs a program to its end; returns its output.
    ///
    /// # Errors
    /// The program is not there, fails, or does not end.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, CallError>;
}

/// A failed program of the node.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The program could not be started.
    #[error("cannot run {command} on the node")]
    Start {
        /// The program and its arguments.
        command: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The program ended with another status than 0.
    #[error("{command} on the node: {status}: {said}")]
    Failed {
        /// The program and its arguments.
        command: String,
        /// How it ended.
        status: String,
        /// Output of the program.
        said: String,
    },
    /// The program was killed, because it took too long.
    #[error("{command} on the node did not end within {} s", LIMIT.as_secs())]
    Hangs {
        /// The program and its arguments.
        command: String,
    },
}

/// Programs of a node whose root is mounted somewhere.
#[derive(Clone, Debug)]
pub struct MountedHost {
    root: PathBuf,
    /// The program and arguments for calling [`enter`] with the arguments after them.
    enter: Vec<String>,
}

impl MountedHost {
    /// The host with its root at `root`. `enter` is a command for calling [`enter`] with a root, a program
    /// and its arguments.
    #[must_use]
    pub fn new(root: &Path, enter: Vec<String>) -> MountedHost {
        MountedHost { root: root.to_owned(), enter }
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = if self.root == Path::new("/") {
            Command::new(program)
        } else {
            let mut command = Command::new(self.enter.first().map_or("", String::as_str));
            command.args(&self.enter[1..]).arg(&self.root).arg(program);
            command
        };
        // Without this, systemctl does not talk to systemd from within a changed root (systemctl(1)).
        command
            .args(arguments)
            .env_clear()
            .env("PATH", PATH)
            .env("SYSTEMD_IGNORE_CHROOT", "1")
            .env("LC_ALL", "C");
        command
    }
}

impl Host for MountedHost {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, CallError> {
        let shown = [&[program], arguments].concat().join(" ");
        let (status, said) = match output(self.command(program, arguments)) {
            Ok(Some(ended)) => ended,
            Ok(None) => return Err(CallError::Hangs { command: shown }),
            Err(source) => return Err(CallError::Start { command: shown, source }),
        };
        if status.success() {
            return Ok(said);
        }
        Err(CallError::Failed { command: shown, status: status.to_string(), said: said.trim().to_owned() })
    }
}

/// Runs a command to its end; `None` if it was killed after the time limit.
fn output(mut command: Command) -> io::Result<Option<(ExitStatus, String)>> {
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // The command has the pipe's other end open, too.
    drop(command);
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let mut said = Vec::new();
        let mut reader = reader.take(OUTPUT_BYTES_MAX);
        let outcome = reader.read_to_end(&mut said).and_then(|_| child.wait());
        // If the program took too long, the receiver is gone.
        let _ = sender.send(outcome.map(|status| (status, String::from_utf8_lossy(&said).into_owned())));
    });
    match ended.recv_timeout(LIMIT) {
        Ok(outcome) => outcome.map(Some),
        Err(_) => {
            if let Some(pid) = pid {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            Ok(None)
        }
    }
}

/// Replaces this process by a program of the node with its root at `root`. Returns only if this fails.
pub fn enter(root: &Path, program: &Path, arguments: &[String]) -> io::Error {
    if let Err(errno) = rustix::process::chroot(root).and_then(|()| rustix::process::chdir("/")) {
        return errno.into();
    }
    Command::new(program).args(arguments).exec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> MountedHost {
        MountedHost::new(Path::new("/"), Vec::new())
    }

    #[test]
    fn a_program_of_the_node_returns_what_it_says_and_fails_with_it() {
        assert_eq!(here().run("sh", &["-c", "echo out; echo error >&2"]).unwrap(), "out\nerror\n");
        let failed = here().run("sh", &["-c", "echo why >&2; exit 3"]).unwrap_err().to_string();
        assert!(failed.contains("exit status: 3: why"), "{failed}");
        let missing = here().run("no-such-program", &["a"]).unwrap_err().to_string();
        assert_eq!(missing, "cannot run no-such-program a on the node");
    }

    #[test]
    fn a_program_has_nothing_of_the_containers_environment() {
        let said = here().run("env", &[]).unwrap();
        let mut names: Vec<_> = said.lines().filter_map(|line| line.split('=').next()).collect();
        names.sort_unstable();
        assert_eq!(names, ["LC_ALL", "PATH", "SYSTEMD_IGNORE_CHROOT"]);
    }

    #[test]
    fn another_root_is_entered_by_the_command_that_does_so() {
        let host = MountedHost::new(Path::new("/host"), vec!["echo".into(), "enter".into()]);
        assert_eq!(
            host.run("systemctl", &["daemon-reload"]).unwrap(),
            "enter /host systemctl daemon-reload\n"
        );
    }
}
