//! Runs one CNI plugin once: environment and configuration in, JSON out, within bounds of time and size (CNI
//! specification 1.1.0, section 2). Owns the process; knows nothing of chains, pods and caches.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use runtime_fail_points::{Point, pass_async};
use runtime_spans::{span, step};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::timeout,
};

use crate::{NetError, error::head};

/// The largest answer that is read; real ones are a few KiB.
const STDOUT_BYTES_MAX: u64 = 1 << 20;
/// How much of stderr is kept, for errors; the rest is read and dropped so that the plugin cannot block.
const STDERR_BYTES_MAX: u64 = 4 << 10;

/// A plugin to be run.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// The plugin's type.
    pub(crate) plugin: &'a str,
    /// The plugin's binary.
    pub(crate) binary: PathBuf,
    /// ADD or DEL.
    pub(crate) command: &'static str,
    /// `CNI_…` other than `CNI_COMMAND`.
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// The execution configuration.
    pub(crate) stdin: &'a Map<String, Value>,
    /// Most time for the run.
    pub(crate) time_max: Duration,
    /// Most descriptors that the plugin may open; `None` for as many as this process.
    pub(crate) open_files_max: Option<u64>,
}

/// The error object of section 5 of the specification.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Failure {
    code: u32,
    msg: String,
    details: String,
}

impl Call<'_> {
    /// Runs the plugin and returns its answer; an empty one is `Null`.
    pub(crate) async fn run(&self) -> Result<Value, NetError> {
        let span = span!("CNI", otel.name = format_args!("CNI {}", self.command), cni.plugin = self.plugin);
        step(span, self.answered()).await
    }

    async fn answered(&self) -> Result<Value, NetError> {
        let (status, stdout, stderr) = self.output().await?;
        if !status.success() {
            return Err(self.failure(status, &stdout, &stderr));
        }
        if stdout.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&stdout).map_err(|error| {
            self.answer(format!("its answer is not JSON ({error}); it begins with {}", head(&stdout)))
        })
    }

    /// Makes the error of an answer that was JSON but is wrong.
    pub(crate) fn answer(&self, reason: String) -> NetError {
        NetError::PluginAnswer { plugin: self.plugin.to_owned(), command: self.command, reason }
    }

    async fn output(&self) -> Result<(ExitStatus, Vec<u8>, Vec<u8>), NetError> {
        let io = |action| {
            move |source| NetError::PluginIo {
                plugin: self.plugin.to_owned(),
                command: self.command,
                action,
                source,
            }
        };
        let input = serde_json::to_vec(self.stdin).expect("a JSON map with string keys can be written");
        let point = if self.command == "ADD" { Point::CniAdd } else { Point::CniDel };
        pass_async(point).await.map_err(io("run it"))?;
        let mut child = self.spawn().map_err(io("run it"))?;
        // Armed until the plugin has ended by itself: an early return kills the whole group.
        let mut group = ProcessGroup(child.id());
        let mut stdin = child.stdin.take().expect("stdin was piped");
        let stdout = child.stdout.take().expect("stdout was piped");
        let stderr = child.stderr.take().expect("stderr was piped");
        let feed = async move {
            // A plugin need not read all of its input; if it should have, its own error says so.
            let _ = stdin.write_all(&input).await;
        };
        let ended = timeout(self.time_max, async {
            tokio::join!(
                feed,
                bounded(stdout, STDOUT_BYTES_MAX),
                bounded(stderr, STDERR_BYTES_MAX),
                child.wait()
            )
        });
        let (_, stdout, stderr, status) = ended.await.map_err(|_| NetError::PluginTimeout {
            plugin: self.plugin.to_owned(),
            command: self.command,
            after: self.time_max,
        })?;
        let status = status.map_err(io("wait for it"))?;
        group.0 = None;
        let (stdout, dropped) = stdout.map_err(io("read its answer"))?;
        if dropped {
            return Err(self.answer("its answer is larger than 1 MiB".into()));
        }
        Ok((status, stdout, stderr.map_or_else(|_| Vec::new(), |(kept, _)| kept)))
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let mut command = Command::new(&self.binary);
        command.env("CNI_COMMAND", self.command);
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        command.current_dir("/").process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn()?;
        // The plugin has no input yet, so the limit is there before its work.
        if let Some(most) = self.open_files_max
            && let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok())
        {
            let limit = Rlimit { current: Some(most), maximum: getrlimit(Resource::Nofile).maximum };
            // A plugin that has ended already needs none.
            let _ = prlimit(rustix::process::Pid::from_raw(pid), Resource::Nofile, limit);
        }
        Ok(child)
    }

    fn failure(&self, status: ExitStatus, stdout: &[u8], stderr: &[u8]) -> NetError {
        let reported =
            serde_json::from_slice::<Failure>(stdout).ok().filter(|failure| !failure.msg.is_empty());
        let (code, message) = match reported {
            Some(Failure { code, msg, details }) if details.is_empty() => (code, msg),
            Some(Failure { code, msg, details }) => (code, format!("{msg}: {details}")),
            None => {
                let output = if stderr.is_empty() { head(stdout) } else { head(stderr) };
                (0, format!("ended with {status} and no CNI error; it said {output}"))
            }
        };
        NetError::Plugin { plugin: self.plugin.to_owned(), command: self.command, code, message }
    }
}

/// Reads to the end, keeps the first `max` bytes, and returns them and whether there were more.
async fn bounded(mut from: impl AsyncRead + Unpin, max: u64) -> std::io::Result<(Vec<u8>, bool)> {
    let mut kept = Vec::new();
    (&mut from).take(max).read_to_end(&mut kept).await?;
    let dropped = tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok((kept, dropped > 0))
}

/// A plugin's process group, killed when dropped unless disarmed.
struct ProcessGroup(Option<u32>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(id) = self.0.and_then(|id| i32::try_from(id).ok()) {
            // Its members may all have ended in this moment: then there is nobody to kill.
            let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
        }
    }
}

/// Finds the first of `dirs` with an executable file called `plugin`, and returns the file's path.
pub(crate) fn find(plugin: &str, dirs: &[PathBuf]) -> Option<PathBuf> {
    dirs.iter().map(|dir| dir.join(plugin)).find(|path| executable(path))
}

fn executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
