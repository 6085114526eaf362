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
use runtime_blocking::in_place;
use runtime_fail_points::{Point, pass_async};
use runtime_spans::{span, step};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Map, Value};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::{sleep, timeout},
};

use crate::{NetError, error::head};

/// Bytes of the largest accepted answer; real ones are a few KiB.
const STDOUT_BYTES_MAX: u64 = 1 << 20;
/// Most bytes kept of stderr, for errors. The rest is read and dropped so the plugin cannot block.
const STDERR_BYTES_MAX: u64 = 4 << 10;

/// How often and after what delay a plugin is retried while its file is being written. libcni uses the same
/// numbers.
const BUSY_TRIES: usize = 5;
pub(crate) const BUSY_WAIT: Duration = Duration::from_secs(1);

/// A plugin to be run.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// The plugin's type.
    pub(crate) plugin: &'a str,
    /// The plugin's binary.
    pub(crate) binary: PathBuf,
    /// ADD, DEL, STATUS or GC.
    pub(crate) command: &'static str,
    /// `CNI_…` other than `CNI_COMMAND`.
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// The execution configuration.
    pub(crate) stdin: &'a Map<String, Value>,
    /// Most time for the run.
    pub(crate) time_max: Duration,
    /// Most descriptors for the plugin; `None` for this process's own limit.
    pub(crate) open_files_max: Option<u64>,
    /// The delay before a plugin is tried again if its file is being written.
    pub(crate) busy_wait: Duration,
}

impl Call<'_> {
    /// Runs the plugin and returns its answer to ADD; an empty one is `Null`.
    pub(crate) async fn run(&self) -> Result<Value, NetError> {
        let span = span!("CNI", otel.name = format_args!("CNI {}", self.command), cni.plugin = self.plugin);
        step(span, self.answered()).await
    }

    async fn answered(&self) -> Result<Value, NetError> {
        let (status, stdout, stderr) = self.output().await?;
        // As other runtimes do. Many plugins log there.
        if !stderr.iter().all(u8::is_ascii_whitespace) {
            let pod = self.environment.iter().find(|(name, _)| *name == "CNI_CONTAINERID");
            let pod = pod.map(|(_, id)| id.to_string_lossy().into_owned());
            tracing::info!(
                pod,
                plugin = self.plugin,
                command = self.command,
                said = head(&stderr),
                "a CNI plugin wrote to stderr"
            );
        }
        if !status.success() {
            return Err(self.failure(status, &stdout, &stderr));
        }
        // Other commands have no answer. A plugin printing something anyway has still succeeded.
        if self.command != "ADD" || stdout.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        match serde_json::from_slice(&stdout) {
            // As in libcni.
            Ok(Value::Null) => Ok(Map::new().into()),
            Ok(answer) => Ok(answer),
            Err(error) => {
                Err(self
                    .answer(format!("its answer is not JSON ({error}); it begins with {}", head(&stdout))))
            }
        }
    }

    /// Builds the error for an answer of valid JSON with wrong content.
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
        match self.command {
            "ADD" => pass_async(Point::CniAdd).await.map_err(io("run it"))?,
            "DEL" => pass_async(Point::CniDel).await.map_err(io("run it"))?,
            _ => {}
        }
        let mut child = self.spawned().await.map_err(io("run it"))?;
        // Armed until the plugin has ended by itself. An early return kills the whole group.
        let mut group = ProcessGroup(child.id());
        let mut stdin = child.stdin.take().expect("stdin was piped");
        let stdout = child.stdout.take().expect("stdout was piped");
        let stderr = child.stderr.take().expect("stderr was piped");
        let feed = async move {
            // A plugin need not read all its input. If the missing part matters, the plugin reports its own
            // error.
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

    /// Starts the plugin, with retries while its file is being written: network add-ons replace plugins in
    /// place.
    async fn spawned(&self) -> std::io::Result<Child> {
        for _ in 0..BUSY_TRIES {
            match self.spawn() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    sleep(self.busy_wait).await;
                }
                other => return other,
            }
        }
        self.spawn()
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let mut command = Command::new(&self.binary);
        command.env("CNI_COMMAND", self.command);
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        command.current_dir("/").process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = in_place(|| command.spawn())?;
        // The plugin has no input yet, so the limit is there before its work.
        if let Some(most) = self.open_files_max
            && let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok())
        {
            let limit = Rlimit { current: Some(most), maximum: getrlimit(Resource::Nofile).maximum };
            // A plugin already ended needs no limit.
            let _ = prlimit(rustix::process::Pid::from_raw(pid), Resource::Nofile, limit);
        }
        Ok(child)
    }

    fn failure(&self, status: ExitStatus, stdout: &[u8], stderr: &[u8]) -> NetError {
        let reported: Value = serde_json::from_slice(stdout).unwrap_or_default();
        let text = |name: &str| reported[name].as_str().unwrap_or_default().trim().to_owned();
        let code = reported["code"].as_u64().and_then(|code| u32::try_from(code).ok()).unwrap_or_default();
        let (msg, details) = (text("msg"), text("details"));
        let words =
            [msg, details].into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(": ");
        let message = match (words.is_empty(), meaning(code)) {
            (false, None) => words,
            (false, Some(meaning)) => format!("{words} (code {code}: {meaning})"),
            (true, Some(meaning)) => format!("code {code}: {meaning}"),
            (true, None) => {
                let output = if stderr.is_empty() { head(stdout) } else { head(stderr) };
                format!("ended with {status} and no CNI error; it said {output}")
            }
        };
        NetError::Plugin { plugin: self.plugin.to_owned(), command: self.command, code, message }
    }
}

/// The meaning of an error code of the specification (CNI 1.1.0, section 5, and STATUS in section 2).
fn meaning(code: u32) -> Option<&'static str> {
    Some(match code {
        1 => "the version of CNI is not the plugin's",
        2 => "a field of the configuration is not supported",
        3 => "the container is not known",
        4 => "an environment variable is wrong",
        5 => "a file or socket failed",
        6 => "the configuration cannot be decoded",
        7 => "the configuration is invalid",
        11 => "try again later",
        50 => "the plugin is not available",
        51 => "the plugin is not available, and running pods may have lost their connections",
        _ => return None,
    })
}

/// Reads to the end and keeps the first `max` bytes. The flag is true if there were more.
async fn bounded(mut from: impl AsyncRead + Unpin, max: u64) -> std::io::Result<(Vec<u8>, bool)> {
    let mut kept = Vec::new();
    (&mut from).take(max).read_to_end(&mut kept).await?;
    let dropped = tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok((kept, dropped > 0))
}

/// A plugin's process group. Dropping it kills the group unless disarmed.
struct ProcessGroup(Option<u32>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(id) = self.0.and_then(|id| i32::try_from(id).ok()) {
            // All members may have ended just now. Then nothing is left to kill.
            let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
        }
    }
}

/// Finds the first of `dirs` with an executable file called `plugin`, and returns the file's path.
pub(crate) fn find(plugin: &str, dirs: &[PathBuf]) -> Option<PathBuf> {
    in_place(|| dirs.iter().map(|dir| dir.join(plugin)).find(|path| executable(path)))
}

fn executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
