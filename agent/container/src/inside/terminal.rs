//! The process's standard streams: the agent's pipes, or the container's own terminal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{CWD, Mode, OFlags, fstat, fstatfs, major, minor, openat};
use rustix::io::Errno;
use rustix::process::ioctl_tiocsctty;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::{mounts, nodes};
use crate::launch::{self, Failure};

const NULL: &str = "/dev/null";
const MULTIPLEXER: &str = "/dev/pts/ptmx";
const CONSOLE: &str = "/dev/console";

/// `DEVPTS_SUPER_MAGIC`, include/uapi/linux/magic.h.
const DEVPTS: i64 = 0x1cd1;

/// Makes these the process's standard streams. The container's null device replaces the agent's.
pub(super) fn take(streams: &[OwnedFd; 3]) -> Result<(), Failure> {
    let take = || {
        let null =
            openat(CWD, NULL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok().filter(nodes::is_null);
        let of_container =
            |stream: &OwnedFd| if nodes::is_null(stream) { null.as_ref().map(AsFd::as_fd) } else { None };
        let [input, output, errors] = streams;
        dup2_stdin(of_container(input).unwrap_or(input.as_fd()))?;
        dup2_stdout(of_container(output).unwrap_or(output.as_fd()))?;
        dup2_stderr(of_container(errors).unwrap_or(errors.as_fd()))
    };
    take().map_err(|errno| Failure::at("cannot set the standard streams", &errno.into()))
}

/// Makes a terminal, sends its master side to the agent, and makes its other side the process's standard
/// streams. With `console` the other side also becomes the container's `/dev/console`.
pub(super) fn open(agent: &UnixStream, console: bool) -> Result<(), Failure> {
    let open = || {
        let master = master()?;
        unlockpt(&master)?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let other_side = ioctl_tiocgptpeer(&master, flags)?;
        if console {
            mount_console(&other_side)?;
        }
        launch::send_terminal(agent, master.as_fd())?;
        ioctl_tiocsctty(&other_side)?;
        dup2_stdin(&other_side)?;
        dup2_stdout(&other_side)?;
        Ok(dup2_stderr(&other_side)?)
    };
    open().map_err(|error: io::Error| Failure::at("cannot make a terminal", &error))
}

/// The container controls this path, so anything but a terminal multiplexer is refused.
fn master() -> io::Result<OwnedFd> {
    let master = openat(
        CWD,
        MULTIPLEXER,
        OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let number = fstat(&master)?.st_rdev;
    if (major(number), minor(number)) != (5, 2) || fstatfs(&master)?.f_type != DEVPTS {
        return Err(io::Error::other(format!(
            "{MULTIPLEXER} of the container is no multiplexer of terminals"
        )));
    }
    rustix::fs::fcntl_setfl(&master, OFlags::empty())?;
    Ok(master)
}

fn mount_console(terminal: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::WRONLY;
    match openat(CWD, CONSOLE, flags, Mode::from_raw_mode(0o666)) {
        Err(Errno::EXIST) => {}
        made => drop(made?),
    }
    let place = openat(CWD, CONSOLE, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    mounts::put(&mounts::clone_opened(terminal, false)?, &place)
}
