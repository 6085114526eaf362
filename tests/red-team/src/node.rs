//! The node under attack: what an escape would reach. Everything is this program's own, below one directory,
//! and nothing else of the node is touched.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Content of files that no pod may read.
pub(crate) const SECRET: &str = "a secret of the node's";

/// Name of an abstract socket of the node.
pub(crate) const ABSTRACT: &str = "red-team-abstract";

/// Name of a network interface of the node.
const INTERFACE: &str = "redteam0";

/// Size of the disk with the volume, in MiB.
const DISK_MIB: u64 = 16;

/// Longest time for a signal to end the bystander.
const DEATH: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Node {
    directory: tempfile::TempDir,
    tcp: TcpListener,
    _unix: UnixListener,
    _abstract: UnixListener,
    pub(crate) interface: u32,
    /// Number of a System V shared memory segment with the secret's place.
    pub(crate) segment: u64,
    pub(crate) loop_device: String,
}

impl Node {
    /// Makes everything. Needs root.
    pub(crate) fn new() -> anyhow::Result<Node> {
        let directory = tempfile::Builder::new().prefix("red-team-").tempdir()?;
        let path = directory.path();
        fs::write(path.join("secret"), SECRET)?;
        fs::set_permissions(path.join("secret"), fs::Permissions::from_mode(0o600))?;
        for name in ["shared", "disk", "mounted", "victims"] {
            fs::create_dir(path.join(name))?;
        }
        // The VMM's own user may pass.
        fs::set_permissions(path, fs::Permissions::from_mode(0o711))?;
        let loop_device = make_disk(path)?;
        let address = SocketAddr::from_abstract_name(ABSTRACT)?;
        run("ip", &["tuntap", "add", INTERFACE, "mode", "tap"])?;
        let interface = fs::read_to_string(format!("/sys/class/net/{INTERFACE}/ifindex"))?.trim().parse()?;
        Ok(Node {
            tcp: TcpListener::bind("127.0.0.1:0")?,
            _unix: UnixListener::bind(path.join("socket"))?,
            _abstract: UnixListener::bind_addr(&address)?,
            interface,
            segment: make_segment()?,
            loop_device,
            directory,
        })
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.path().join("victims")
    }

    /// The pod's shared directory.
    pub(crate) fn shared(&self) -> PathBuf {
        self.directory.path().join("shared")
    }

    /// Paths of the volume: on the node, and below the share's root.
    pub(crate) fn volumes(&self) -> [String; 2] {
        [self.path("shared/volume"), "/volume".to_owned()]
    }

    /// A path of the node's. It has one `secret` and one `socket`.
    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_string_lossy().into_owned()
    }

    pub(crate) fn port(&self) -> anyhow::Result<u16> {
        Ok(self.tcp.local_addr()?.port())
    }

    /// Binds the tenant's directory of the disk as the pod's volume.
    pub(crate) fn bind_volume(&self, with_flags: bool) -> anyhow::Result<()> {
        let volume = self.shared().join("volume");
        if volume.exists() {
            let _ = umount2(&volume, MntFlags::MNT_DETACH);
        } else {
            fs::create_dir(&volume)?;
        }
        let tenant = self.directory.path().join("disk/tenant");
        let none = None::<&str>;
        mount(Some(&tenant), &volume, none, MsFlags::MS_BIND, none)?;
        let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
        if with_flags {
            flags |= MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
        }
        mount(none, &volume, none, flags, none)?;
        Ok(())
    }

    /// Starts a process of the node's root.
    pub(crate) fn bystander(&self) -> anyhow::Result<Bystander> {
        let bystander = Bystander(Command::new("sleep").arg("3600").spawn()?);
        let status = format!("/proc/{}/status", bystander.pid());
        while !fs::read_to_string(&status)?.contains("State:\tS") {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(bystander)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for name in ["shared/volume", "disk"] {
            let _ = umount2(&self.directory.path().join(name), MntFlags::MNT_DETACH);
        }
        let _ = run("ip", &["link", "delete", INTERFACE]);
        let _ = run("ipcrm", &["-m", &self.segment.to_string()]);
    }
}

/// A process that an escape would reach.
#[derive(Debug)]
pub(crate) struct Bystander(Child);

impl Bystander {
    pub(crate) fn pid(&self) -> u64 {
        u64::from(self.0.id())
    }

    /// Waits a moment for its death.
    pub(crate) fn is_dead(&mut self) -> anyhow::Result<bool> {
        let end = Instant::now() + DEATH;
        while Instant::now() < end {
            if self.0.try_wait()?.is_some() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(false)
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        // An attacker who traces it keeps its end until he is gone, so nobody waits.
        let _ = self.0.try_wait();
    }
}

/// Makes a disk with a file system. It holds a tenant's directory, and a secret beside it. Returns its loop
/// device.
fn make_disk(path: &Path) -> anyhow::Result<String> {
    let (image, mounted) = (path.join("disk.img"), path.join("disk"));
    File::create(&image)?.set_len(DISK_MIB << 20)?;
    let (image, mounted) = (image.to_string_lossy(), mounted.to_string_lossy());
    run("mkfs.ext4", &["-q", &image])?;
    run("mount", &["-o", "loop", &image, &mounted])?;
    fs::create_dir(format!("{mounted}/tenant"))?;
    fs::write(format!("{mounted}/secret"), SECRET)?;
    fs::copy("/bin/true", format!("{mounted}/tenant/program"))?;
    let device = run("losetup", &["-j", &image, "-O", "NAME", "-n"])?;
    ensure!(device.starts_with("/dev/loop"), "losetup knows no device of {image}: {device:?}");
    Ok(device)
}

fn make_segment() -> anyhow::Result<u64> {
    let said = run("ipcmk", &["-M", "4096", "-p", "0600"])?;
    said.rsplit(' ').next().and_then(|id| id.parse().ok()).with_context(|| format!("ipcmk said {said:?}"))
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let done =
        Command::new(program).args(arguments).output().with_context(|| format!("running {program}"))?;
    if !done.status.success() {
        bail!("{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}
