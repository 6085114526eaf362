//! The pod's `hostname`, `hosts` and `resolv.conf`, which its containers have mounted and may write. They are on a small file system of
//! their own: a container that fills one takes nothing from the agent, whose files are in memory as well.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use nix::mount::MsFlags;
use proto_agent::guest_path;

/// Where the files are. Containers mount them by the paths that agent and daemon agree on, which are links to here.
const DIRECTORY: &str = "/run/podvisor/pod/files";

/// Room for the three of them, and more than a kubelet writes.
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

/// Writes one of the files, for the user and group that are root in the pod.
pub(crate) fn write(path: &str, bytes: &[u8], (uid, gid): (u32, u32)) -> io::Result<()> {
    File::create(path)?.write_all(bytes)?;
    chown(path, Some(uid), Some(gid))
}
