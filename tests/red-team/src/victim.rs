//! A VMM with its share and a guest, started by hand as the daemon starts it. Only the walls that stand are
//! raised.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto_vmm::{
    BootConfig, Device, FdIndex, Message, PROTOCOL_VERSION, Request, Response, Slot, VolumeCache,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::elf;
use crate::hand::{Hand, Tried};
use crate::node::Node;
use crate::tracer::Tracer;
use crate::walls::{Standing, Wall};

/// The thread under attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// A vCPU of the VMM, the thread nearest to a guest.
    Vcpu,
    /// The share's first thread.
    Share,
}

impl Role {
    pub(crate) const ALL: [Role; 2] = [Role::Vcpu, Role::Share];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Vcpu => "vcpu",
            Role::Share => "share",
        }
    }
}

/// `cli; hlt; jmp` back: a guest that does nothing, for ever.
const CODE: [u8; 4] = [0xfa, 0xf4, 0xeb, 0xfc];

/// Name of the first vCPU's thread.
const VCPU: &str = "vcpu0";

const MEMORY_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct Victim {
    tracer: Tracer,
    vmm: Pid,
    share: Pid,
    /// The VMM's client. Without one the VMM would wait for another.
    _client: OwnedFd,
    /// The VMM's sockets and log.
    dir: tempfile::TempDir,
}

impl Victim {
    pub(crate) fn start(program: &Path, node: &Node, standing: Standing) -> anyhow::Result<Victim> {
        let dir = tempfile::tempdir_in(node.directory())?;
        node.bind_volume(standing.has(Wall::VolumeFlags))?;
        let control = dir.path().join("control.sock");
        let listener = listen(&control)?;
        let gate = dir.path().join("gate");
        nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU)?;
        let log = fs::File::create(dir.path().join("log"))?;
        // The shell waits until it is traced, and becomes the VMM.
        let child = Command::new("sh")
            .args(["-c", "read -r _ <\"$0\"; exec \"$@\""])
            .arg(&gate)
            .arg(program)
            .arg(VolumeCache::default().as_str())
            .current_dir(node.shared())
            .stdin(Stdio::from(listener))
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .spawn()
            .context("starting a shell")?;
        let vmm = Pid::from_raw(child.id().cast_signed());
        let mut tracer = Tracer::seize(vmm, standing)?;
        let vsock = dir.path().join("vsock.sock");
        let client = std::thread::spawn(move || {
            fs::write(&gate, "go\n")?;
            boot(&control, &vsock)
        });
        let started = tracer.run_until(|| client.is_finished());
        started.with_context(|| log_in(dir.path()))?;
        let client = match client.join() {
            Ok(client) => client.with_context(|| log_in(dir.path()))?,
            Err(_) => bail!("the client panicked"),
        };
        // A thread names itself after the boot is answered.
        tracer.run_until(|| thread_of(vmm, VCPU).is_ok()).context("waiting for the guest's vCPU")?;
        tracer.set_free();
        Ok(Victim { tracer, vmm, share: only_child(vmm)?, _client: client, dir })
    }

    /// Takes over the thread of a role.
    pub(crate) fn hand(&mut self, role: Role) -> Tried<Hand<'_>> {
        let thread = match role {
            Role::Vcpu => thread_of(self.vmm, VCPU)?,
            Role::Share => self.share,
        };
        Hand::take(&mut self.tracer, thread)
    }

    /// The VMM's log.
    pub(crate) fn log(&self) -> String {
        log_in(self.dir.path())
    }

    /// Returns true if neither process was killed.
    pub(crate) fn is_alive(&self) -> bool {
        [self.vmm, self.share].into_iter().all(|process| self.tracer.has(process))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        for process in [self.share, self.vmm] {
            let _ = kill(process, Signal::SIGKILL);
        }
        self.tracer.bury();
    }
}

fn log_in(directory: &Path) -> String {
    fs::read_to_string(directory.join("log")).unwrap_or_default()
}

fn only_child(process: Pid) -> anyhow::Result<Pid> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
    let [child] = children.split_whitespace().collect::<Vec<_>>()[..] else {
        bail!("the VMM has other children than a share: {children:?}");
    };
    Ok(Pid::from_raw(child.parse()?))
}

fn thread_of(process: Pid, name: &str) -> anyhow::Result<Pid> {
    for entry in fs::read_dir(format!("/proc/{process}/task"))?.flatten() {
        if fs::read_to_string(entry.path().join("comm"))?.trim() == name {
            return Ok(Pid::from_raw(entry.file_name().to_string_lossy().parse()?));
        }
    }
    bail!("the VMM has no thread {name}")
}

fn listen(path: &Path) -> anyhow::Result<OwnedFd> {
    let socket = packets()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 4)?;
    Ok(socket)
}

fn packets() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Boots the guest as the daemon does. Returns the connection.
fn boot(control: &Path, vsock: &Path) -> anyhow::Result<OwnedFd> {
    let client = packets()?;
    rustix::net::connect(&client, &SocketAddrUnix::new(control)?)?;
    ask(&client, 1, Request::Hello { version: PROTOCOL_VERSION }, &[])?;
    let image = file(&vec![0; 2 << 20])?;
    let vsock: OwnedFd = UnixListener::bind(vsock)?.into();
    let listener =
        Device::Vsock { listener: FdIndex(2), guest_cid: 3, host_ports: vec![1024], program_port: None };
    let config = BootConfig {
        id: "red-team".into(),
        vcpus: 1,
        vcpus_at_boot: 1,
        memory_bytes: MEMORY_BYTES,
        memory_max_bytes: MEMORY_BYTES,
        kernel: FdIndex(0),
        cmdline: String::new(),
        devices: vec![
            (Slot::ROOT, Device::Pmem { image: FdIndex(1) }),
            (Slot::VSOCK, listener),
            (Slot::RNG, Device::Rng),
        ],
    };
    ask(&client, 2, Request::Boot(Box::new(config)), &[file(&elf::kernel(&CODE))?, image, vsock])?;
    Ok(client)
}

fn ask(client: &OwnedFd, id: u64, request: Request, fds: &[OwnedFd]) -> anyhow::Result<Response> {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    proto_vmm::send(client, &Message::Request { id, request }, &fds)?;
    let packet = proto_vmm::recv(client)?.context("the VMM hung up")?;
    match packet.message {
        Message::Response { result: Ok(response), .. } => Ok(response),
        other => bail!("the VMM answered {other:?}"),
    }
}

fn file(bytes: &[u8]) -> anyhow::Result<OwnedFd> {
    use std::io::Write;
    let mut file = fs::File::from(memfd_create(c"red-team", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}
