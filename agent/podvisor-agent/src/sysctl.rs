//! Sysctls of the guest: their paths, and how they are written.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use agent_container::syscall;
use nix::sched::{CloneFlags, setns};

/// Writes a sysctl. `root` is the guest's user id of the pod's root.
pub(crate) fn write(path: &Path, value: &str, root: u32) -> io::Result<()> {
    match std::fs::write(path, value) {
        // Only the namespace's owner may write IPC sysctls, regardless of root's other rights
        // (`ipc_permissions` of the kernel's ipc/ipc_sysctl.c).
        Err(error) if root != 0 && error.kind() == io::ErrorKind::PermissionDenied => {
            syscall::as_user(root, || std::fs::write(path, value)).flatten()
        }
        written => written,
    }
}

/// Writes a sysctl as it is in another network namespace, from a short-lived thread. Some sysctls of the
/// whole kernel's network are read-only in all namespaces but the first, or missing there
/// (`sysctl_core_net_init` of the kernel's net/core/sysctl_net_core.c).
pub(crate) fn write_in(network: &File, path: &Path, value: &str) -> io::Result<()> {
    let write = || {
        setns(network, CloneFlags::CLONE_NEWNET)?;
        std::fs::write(path, value)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sysctl".into()).spawn_scoped(scope, write)?;
        thread.join().map_err(|_| io::Error::other("its thread panicked"))?
    })
}

/// Returns true if a sysctl of the network may be writable in the kernel's first network namespace alone.
pub(crate) fn is_of_first_network(path: &Path, error: &io::Error) -> bool {
    let is_missing = matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound);
    is_missing && path.starts_with("/proc/sys/net")
}

/// The file of a sysctl. The first separator in the name, a dot or a slash, separates the whole name
/// (sysctl(8)), so `net/ipv4/conf/eth0.5/forwarding` can be written, too.
pub(crate) fn path(name: &str) -> Option<PathBuf> {
    let separator = name.chars().find(|c| matches!(c, '.' | '/'))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let parts: Vec<String> = name
        .split(separator)
        .map(|part| if separator == '.' { part.replace('/', ".") } else { part.to_owned() })
        .collect();
    let good = |part: &String| !part.is_empty() && part != "." && part != "..";
    if !name.chars().all(plain) || !parts.iter().all(good) {
        return None;
    }
    Some(Path::new("/proc/sys").join(parts.join("/")))
}

/// The rank of a sysctl in the order of writing. A sysctl of the whole network, such as `ip_forward`, also
/// writes those of `all` and `default`, and one of `all` writes every interface's. The narrowest must be
/// written last.
pub(crate) fn rank(path: &Path) -> u8 {
    let parts: Vec<&str> =
        path.iter().filter_map(|part| part.to_str()).skip_while(|part| *part != "sys").collect();
    match parts[..] {
        [_, "net", _, "conf" | "neigh", "all", ..] => 1,
        [_, "net", _, "conf" | "neigh", "default", ..] => 2,
        [_, "net", _, "conf" | "neigh", ..] => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sysctl_of_one_interface_comes_after_those_of_all() {
        let names = [
            "net.ipv4.conf.eth0.forwarding",
            "net.ipv4.conf.default.rp_filter",
            "net.ipv4.conf.all.accept_redirects",
            "net.ipv4.ip_forward",
        ];
        let ranks = names.map(|name| rank(&path(name).unwrap()));
        assert_eq!(ranks, [3, 2, 1, 0]);
    }

    #[test]
    fn a_sysctl_is_a_file_below_proc_sys_and_nowhere_else() {
        let path = |name| path(name).map(|path| path.display().to_string());
        assert_eq!(path("net.core.somaxconn").as_deref(), Some("/proc/sys/net/core/somaxconn"));
        assert_eq!(path("net/ipv4/conf/eth0.5/rp").as_deref(), Some("/proc/sys/net/ipv4/conf/eth0.5/rp"));
        assert_eq!(path("net.ipv4.conf.eth0/5.rp").as_deref(), Some("/proc/sys/net/ipv4/conf/eth0.5/rp"));
        for bad in ["", "plain", "../x", "a/../b", "a..b", "/etc/passwd", "a.b\0", "a.b c", "a/./b"] {
            assert_eq!(path(bad), None, "{bad:?}");
        }
    }
}
