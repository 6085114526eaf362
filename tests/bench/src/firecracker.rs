//! Rows of Firecracker with our kernel and our root image, up to our agent's first message: booted, and from
//! its snapshot of a guest with a waiting agent, like our template. The caller names the program. This file
//! only knows its command line, its API and its vsock, with the same protocol as ours.
//!
//! ```text
//!   a process ─ configuration from a file ─ boot ─────────────────────────────────> the agent dials port 1024
//!   a process ─ PUT /snapshot/load, answered ─ the agent is woken at port 1026 ───> the agent dials port 1024
//! ```

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hyper::{Method, Request, client};
use hyper_util::rt::TokioIo;
use proto_agent::{TEMPLATE_ARGUMENT, port};
use rustix::fs::inotify;
use serde_json::{Value, json};
use tests_e2e::built::Built;
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::handlers::SETTLED_WITHIN;
use crate::programs;
use crate::rows::{AGENT, RESTORED, Row};

/// The guest's memory, the same as the compared pods'.
const MEMORY_MIB: u64 = 128;

/// The command line of our guests (`vmm/vm/src/boot/command_line.rs`), except for devices and the root
/// device. Firecracker adds those.
const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 reboot=k 8250.nr_uarts=1 tsc=reliable maxcpus=1 random.trust_cpu=on \
    percpu_alloc=page rootwait=5 rootfstype=erofs rootflags=dax=always init=/podvisor-agent";

/// Names in the working directory of each process.
const API: &str = "api.sock";
const VSOCK: &str = "vsock.sock";
const CONFIG: &str = "config.json";
const OUTPUT: &str = "output";

/// Longest event of inotify(7): its header, and a name.
const EVENT_BYTES_MAX: usize = 16 + 256;

/// Pause before the next dial of the API: its socket exists before the server listens.
const DIAL_PAUSE: Duration = Duration::from_micros(100);

/// Longest wait for the agent, and for the answer to a call.
const ANSWERED_WITHIN: Duration = Duration::from_secs(300);

/// Starts VMs in both ways.
pub(crate) async fn bench(
    program: &Path,
    built: &Built,
    memory: &Path,
    starts: usize,
) -> anyhow::Result<Vec<Row>> {
    let copy = programs::stage(program, memory)?;
    let mut booted = Vec::with_capacity(starts);
    for number in 0..=starts {
        let process = Process::make(&copy, memory)?;
        process.configure(built, COMMAND_LINE)?;
        tokio::time::sleep(SETTLED_WITHIN).await;
        let begun = Instant::now();
        let mut child = process.spawn(&["--no-api", "--config-file", CONFIG])?;
        runtime_guest::ready(process.agent(&child).await?).await?;
        // The first one has cold caches.
        if number > 0 {
            booted.push(begun.elapsed());
        }
        child.kill().await?;
    }
    let snapshot = Snapshot::make(&copy, built, memory).await?;
    let (mut restored, mut woken) = (Vec::with_capacity(starts), Vec::with_capacity(starts));
    for number in 0..=starts {
        let process = Process::make(&copy, memory)?;
        tokio::time::sleep(SETTLED_WITHIN).await;
        let took = snapshot.restore(process).await?;
        if number > 0 {
            restored.push(took.0);
            woken.push(took.1);
        }
    }
    let how = "Firecracker, from its snapshot";
    Ok(vec![
        Row::new("Firecracker, boots", AGENT, booted),
        Row::new(how, RESTORED, restored),
        Row::new(how, AGENT, woken),
    ])
}

/// A process to be started, with the socket for its guest's agent.
struct Process {
    program: PathBuf,
    dir: tempfile::TempDir,
    ready: UnixListener,
}

impl Process {
    fn make(program: &Path, memory: &Path) -> anyhow::Result<Process> {
        let dir = tempfile::Builder::new().prefix("firecracker-").tempdir_in(memory)?;
        let ready = UnixListener::bind(dir.path().join(format!("{VSOCK}_{}", port::READY)))?;
        // The next file made there is the process's socket.
        File::create(dir.path().join(OUTPUT))?;
        Ok(Process { program: program.to_owned(), dir, ready })
    }

    /// Writes the configuration of a booting guest.
    fn configure(&self, built: &Built, command_line: &str) -> anyhow::Result<()> {
        let root = built.guest_image.join("root.erofs");
        let config = json!({
            "boot-source": { "kernel_image_path": built.guest_image.join("vmlinux"), "boot_args": command_line },
            "machine-config": { "vcpu_count": 1, "mem_size_mib": MEMORY_MIB },
            "drives": [],
            "pmem": [{ "id": "root", "path_on_host": root, "root_device": true, "read_only": true }],
            "vsock": { "guest_cid": 3, "uds_path": VSOCK },
            "entropy": {},
        });
        Ok(fs::write(self.dir.path().join(CONFIG), serde_json::to_vec(&config)?)?)
    }

    fn spawn(&self, arguments: &[&str]) -> anyhow::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(self.dir.path()).stdin(Stdio::null());
        // The guest's console is its standard output.
        let output = File::options().append(true).open(self.output())?;
        command.stdout(output.try_clone()?).stderr(output);
        command.kill_on_drop(true).spawn().with_context(|| format!("running {command:?}"))
    }

    fn output(&self) -> PathBuf {
        self.dir.path().join(OUTPUT)
    }

    /// Waits for the agent's stream.
    async fn agent(&self, child: &Child) -> anyhow::Result<UnixStream> {
        match tokio::time::timeout(ANSWERED_WITHIN, self.ready.accept()).await {
            Ok(accepted) => Ok(accepted?.0),
            Err(_) => {
                let output = fs::read_to_string(self.output())?;
                bail!("the agent in Firecracker's process {:?} said nothing:\n{output}", child.id())
            }
        }
    }
}

/// A waiting guest, as files.
struct Snapshot {
    memory: PathBuf,
    state: PathBuf,
}

impl Snapshot {
    async fn make(program: &Path, built: &Built, memory: &Path) -> anyhow::Result<Snapshot> {
        let process = Process::make(program, memory)?;
        process.configure(built, &format!("{COMMAND_LINE} -- {TEMPLATE_ARGUMENT}"))?;
        let socket = next_file(process.dir.path())?;
        let mut child = process.spawn(&["--api-sock", API, "--config-file", CONFIG])?;
        let mut api = Api::dial(process.dir.path(), socket).await?;
        runtime_guest::ready_and_done(process.agent(&child).await?).await?;
        let (files, state) = (memory.join("snapshot-memory"), memory.join("snapshot-state"));
        api.call(Method::PATCH, "/vm", &json!({ "state": "Paused" })).await?;
        let create = json!({ "snapshot_type": "Full", "snapshot_path": state, "mem_file_path": files });
        api.call(Method::PUT, "/snapshot/create", &create).await?;
        child.kill().await?;
        Ok(Snapshot { memory: files, state })
    }

    /// Starts a process with a guest from this snapshot. Returns the time until the answer to the load, and
    /// until the woken agent was ready.
    async fn restore(&self, process: Process) -> anyhow::Result<(Duration, Duration)> {
        let socket = next_file(process.dir.path())?;
        let load = json!({
            "snapshot_path": self.state,
            "mem_backend": { "backend_type": "File", "backend_path": self.memory },
            "resume_vm": true,
        });
        let begun = Instant::now();
        let mut child = process.spawn(&["--api-sock", API])?;
        let mut api = Api::dial(process.dir.path(), socket).await?;
        api.call(Method::PUT, "/snapshot/load", &load).await?;
        let restored = begun.elapsed();
        runtime_guest::wake(&process.dir.path().join(VSOCK), &[7; 64]).await?;
        runtime_guest::ready(process.agent(&child).await?).await?;
        let woken = begun.elapsed();
        child.kill().await?;
        Ok((restored, woken))
    }
}

/// Waits, on its own thread, for the next new file in a directory.
fn next_file(dir: &Path) -> anyhow::Result<JoinHandle<io::Result<usize>>> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watch, dir, inotify::WatchFlags::CREATE)?;
    let mut watch = File::from(watch);
    Ok(tokio::task::spawn_blocking(move || watch.read(&mut [0; EVENT_BYTES_MAX])))
}

/// The API of a process, connected.
struct Api(client::conn::http1::SendRequest<String>);

impl Api {
    /// Dials as soon as the socket exists: the process's first new file.
    async fn dial(dir: &Path, socket: JoinHandle<io::Result<usize>>) -> anyhow::Result<Api> {
        let dialling = async {
            socket.await??;
            loop {
                match UnixStream::connect(dir.join(API)).await {
                    Ok(stream) => return anyhow::Ok(stream),
                    // The runtime's own pauses are as long as a millisecond, and nothing else is to be done.
                    Err(_) => std::thread::sleep(DIAL_PAUSE),
                }
            }
        };
        let stream = tokio::time::timeout(ANSWERED_WITHIN, dialling).await;
        let stream = stream.with_context(|| fs::read_to_string(dir.join(OUTPUT)).unwrap_or_default())??;
        let (sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Api(sender))
    }

    async fn call(&mut self, method: Method, path: &str, body: &Value) -> anyhow::Result<()> {
        let request = Request::builder().method(method).uri(path).header("Host", "localhost");
        let request = request.header("Content-Type", "application/json").body(body.to_string())?;
        let answer = tokio::time::timeout(ANSWERED_WITHIN, self.0.send_request(request)).await;
        let status = answer.with_context(|| format!("{path} is not answered"))??.status();
        ensure!(status.is_success(), "{path} is answered with {status}");
        Ok(())
    }
}
