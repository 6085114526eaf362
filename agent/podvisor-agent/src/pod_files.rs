//! The pod's `hostname`, `hosts` and `resolv.conf`. Containers mount them and may write to them. They are on
//! a small separate file system, so that a container filling one takes no memory from the agent's files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use nix::mount::MsFlags;
use proto_agent::guest_path;

/// Directory of the files. Containers mount them by the paths agreed between agent and daemon; these paths
/// are links to here.
const DIRECTORY: &str = "/run/podvisor/pod/files";

/// Room for all three, more than a kubelet writes.
const OPTIONS: &str = "mode=0755,size=1m,nr_inodes=16";

/// Mounts the file system.
pub(crate) fn mount() -> io::Result<()> {
    fs::create_dir(DIRECTORY)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NODEV;
    nix::mount::mount(Some("files"), DIRECTORY, Some("tmpfs"), flags, Some(OPTIONS))?;
    for path in [guest_path::HOSTNAME, guest_path::HOSTS, guest_path::RESOLV_CONF] {
        let name = Path::new(path).file_name().ok_or(io::ErrorKind::InvalidInput)?;
        symlink(Path::new(DIRECTORY).join(name), path)?;
    }
    Ok(())
}

/// Writes one of the files for the pod's root, given as the guest's user and group.
pub(crate) fn write(path: &str, bytes: &[u8], (uid, gid): (u32, u32)) -> io::Result<()> {
    File::create(path)?.write_all(bytes)?;
    chown(path, Some(uid), Some(gid))
}
