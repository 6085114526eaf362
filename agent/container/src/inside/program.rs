//! The program of a process: found as the container's user, and executed.

use std::convert::Infallible;
use std::ffi::CString;
use std::path::{Path, PathBuf};

use proto_seccomp::Filter;
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;

use crate::launch::{Failure, FailureKind};
use crate::syscall;

/// Search path for a name without a slash if the process has no PATH: the C library's `_CS_PATH`, and the
/// usual directories of images.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program, with its arguments and environment.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    file: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Program {
    /// Finds the program named by the first argument.
    pub(super) fn find(arguments: &[String], environment: &[String]) -> Result<Program, Failure> {
        let path = find(arguments, environment)?;
        Ok(Program {
            file: CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| zero_byte())?,
            path,
            arguments: texts(arguments)?,
            environment: texts(environment)?,
        })
    }

    /// Executes the program under the filter. No other system call comes between them, so a filter only has
    /// to allow execve(2) and the program's own calls.
    pub(super) fn execute(self, filter: Option<&Filter>) -> Result<Infallible, Failure> {
        syscall::restore_broken_pipe();
        if let Some(filter) = filter {
            syscall::load_filter(&filter.program, filter.flags)
                .map_err(|error| Failure::at("cannot load the seccomp profile", &error))?;
        }
        let Err(errno) = nix::unistd::execve(&self.file, &self.arguments, &self.environment);
        Err(refused(&self.path, errno))
    }
}

fn texts(texts: &[String]) -> Result<Vec<CString>, Failure> {
    texts.iter().map(|text| CString::new(text.as_bytes()).map_err(|_| zero_byte())).collect()
}

fn zero_byte() -> Failure {
    Failure::new(FailureKind::Other, "an argument or a variable holds a zero byte")
}

/// The failure for an existing file refused by the kernel.
fn refused(path: &Path, errno: nix::errno::Errno) -> Failure {
    let path = path.display();
    match errno {
        // The file exists, so its interpreter or its loader is missing.
        nix::errno::Errno::ENOENT => Failure::new(
            FailureKind::ExecutableNotFound,
            &format!("executable file `{path}`: its interpreter is not found"),
        ),
        nix::errno::Errno::EACCES | nix::errno::Errno::EPERM => {
            Failure::new(FailureKind::ExecutableNotRunnable, &format!("exec `{path}`: permission denied"))
        }
        nix::errno::Errno::ENOEXEC => {
            Failure::new(FailureKind::ExecutableNotRunnable, &format!("exec `{path}`: exec format error"))
        }
        errno => Failure::new(FailureKind::Other, &format!("exec `{path}`: {}", errno.desc())),
    }
}

/// Finds the file named by `args[0]` with the rules of execvp(3): a name with a slash is a path, any other is
/// searched in PATH. Unlike there, a directory of PATH that the user may not enter is one without the file.
/// Images have directories of root's there.
fn find(args: &[String], env: &[String]) -> Result<PathBuf, Failure> {
    let name = args.first().map_or("", String::as_str);
    if name.is_empty() {
        return Err(Failure::new(
            FailureKind::ExecutableNotFound,
            "executable file `` not found: no command is given",
        ));
    }
    if name.contains('/') {
        return match executable(Path::new(name)) {
            Ok(()) => Ok(PathBuf::from(name)),
            Err(Errno::NOENT | Errno::NOTDIR) => Err(Failure::new(
                FailureKind::ExecutableNotFound,
                &format!("executable file `{name}` not found"),
            )),
            Err(errno) => Err(not_executable(name, errno)),
        };
    }
    let path = env.iter().rev().find_map(|entry| entry.strip_prefix("PATH=")).unwrap_or(DEFAULT_PATH);
    let mut worse = None;
    for directory in path.split(':') {
        let candidate = Path::new(if directory.is_empty() { "." } else { directory }).join(name);
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(Errno::ACCESS) if is_out_of_reach(&candidate) => {}
            Err(errno) => worse = Some(errno),
        }
    }
    Err(match worse {
        Some(errno) => not_executable(name, errno),
        None => Failure::new(
            FailureKind::ExecutableNotFound,
            &format!("executable file `{name}` not found in $PATH"),
        ),
    })
}

fn not_executable(name: &str, errno: Errno) -> Failure {
    match errno {
        Errno::ACCESS | Errno::PERM => Failure::new(
            FailureKind::ExecutableNotRunnable,
            &format!("executable file `{name}`: permission denied"),
        ),
        Errno::ISDIR => Failure::new(
            FailureKind::ExecutableNotRunnable,
            &format!("executable file `{name}`: permission denied: it is a directory"),
        ),
        errno => Failure::new(FailureKind::Other, &format!("executable file `{name}`: {errno}")),
    }
}

/// Returns true if the calling process may not even know whether there is such a file. A link there to a
/// place out of reach is known.
fn is_out_of_reach(path: &Path) -> bool {
    matches!(rustix::fs::lstat(path), Err(Errno::ACCESS))
}

/// Returns an error unless the calling process may execute this file.
fn executable(path: &Path) -> Result<(), Errno> {
    let metadata = rustix::fs::stat(path)?;
    if rustix::fs::FileType::from_raw_mode(metadata.st_mode).is_dir() {
        return Err(Errno::ISDIR);
    }
    match rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS) {
        // A filter without faccessat2 answers one of these. Then execve itself decides.
        Err(Errno::NOSYS | Errno::PERM) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn text(values: &[&str]) -> Vec<String> {
        values.iter().map(ToString::to_string).collect()
    }

    fn file(directory: &Path, name: &str, mode: u32) {
        let path = directory.join(name);
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_path_is_searched_in_order_past_what_cannot_run() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        file(first.path(), "tool", 0o644);
        file(second.path(), "tool", 0o755);
        let env = text(&[&format!("PATH={}:{}", first.path().display(), second.path().display())]);
        assert_eq!(find(&text(&["tool"]), &env).unwrap(), second.path().join("tool"));
    }

    #[test]
    fn a_missing_executable_differs_from_a_forbidden_one() {
        let dir = tempfile::tempdir().unwrap();
        file(dir.path(), "plain", 0o644);
        let env = text(&[&format!("PATH={}", dir.path().display())]);
        let missing = find(&text(&["none"]), &env).unwrap_err();
        assert_eq!(missing.kind, FailureKind::ExecutableNotFound);
        assert!(missing.message.contains("executable file `none` not found"));
        let plain = find(&text(&["plain"]), &env).unwrap_err();
        assert_eq!(plain.kind, FailureKind::ExecutableNotRunnable);
        assert!(plain.message.contains("permission denied"));
    }

    /// Does the work without the capabilities that pass over modes. They are a thread's own.
    fn as_plain_user<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        let without = || {
            let none = rustix::thread::CapabilitySet::empty();
            let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
            rustix::thread::set_capabilities(None, sets).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(without).join().unwrap())
    }

    #[test]
    fn a_directory_of_the_path_that_may_not_be_entered_has_no_executable() {
        let (closed, open) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        file(closed.path(), "tool", 0o755);
        file(open.path(), "plain", 0o644);
        std::os::unix::fs::symlink(closed.path().join("tool"), open.path().join("link")).unwrap();
        let env = text(&[&format!("PATH={}:{}", open.path().display(), closed.path().display())]);
        let mode = |mode| std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(mode));
        mode(0).unwrap();
        let inside = closed.path().join("tool").display().to_string();
        let [tool, none, plain, link, inside] = ["tool", "none", "plain", "link", &inside]
            .map(|name| as_plain_user(|| find(&text(&[name]), &env).unwrap_err().kind));
        mode(0o700).unwrap();
        assert_eq!((tool, none), (FailureKind::ExecutableNotFound, FailureKind::ExecutableNotFound));
        // These are there, or are asked for by their path.
        assert_eq!([plain, link, inside], [FailureKind::ExecutableNotRunnable; 3]);
    }

    #[test]
    fn a_directory_is_no_executable() {
        let dir = tempfile::tempdir().unwrap();
        let failure = find(&text(&[&dir.path().display().to_string()]), &[]).unwrap_err();
        assert_eq!(failure.kind, FailureKind::ExecutableNotRunnable);
    }

    #[test]
    fn no_command_is_a_missing_executable() {
        assert_eq!(find(&[], &[]).unwrap_err().kind, FailureKind::ExecutableNotFound);
        assert_eq!(find(&text(&[""]), &[]).unwrap_err().kind, FailureKind::ExecutableNotFound);
    }
}
