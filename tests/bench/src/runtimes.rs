//! Containers of other runtimes: `RUNTIME run` of the busybox image's process, with an unpacked file system
//! and the runtime's own default specification. There is no pod, no network, no image and no daemon.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use serde_json::json;

use crate::first_byte::first_bytes;
use crate::programs;
use crate::rows::Row;

/// The process of each container: its first instructions write a line.
pub(crate) const PROCESS: [&str; 2] = ["/bin/echo", "started"];

/// The end of a container's start.
pub(crate) const FIRST_BYTE: &str = "the process's first byte";

/// A service's path: a runtime searches every part of it.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The variable for the directory of a runtime's own copy, made so a container cannot change the runtime; the
/// default is `/tmp`, not in memory.
const COPY_DIR: &str = "_LIBCONTAINER_STATEDIR";

/// The runtimes' names, for finding their programs.
pub(crate) const RUNTIMES: [&str; 2] = ["runc", "crun"];

/// Unpacks the busybox image below `memory`, and returns its root directory.
pub(crate) fn unpack_image(memory: &Path) -> anyhow::Result<PathBuf> {
    let rootfs = memory.join("rootfs");
    let (layers, _) = tests_registry::busybox_image()?;
    for layer in layers {
        layer.unpack(&rootfs)?;
    }
    Ok(rootfs)
}

/// A runtime, in memory, and its own bundle.
pub(crate) struct Runtime {
    pub(crate) name: &'static str,
    program: PathBuf,
    dir: PathBuf,
    bundle: PathBuf,
}

impl Runtime {
    /// Prepares a runtime for containers in this root directory. If it is not installed, there is none, and a
    /// line says so.
    pub(crate) fn prepare(
        name: &'static str,
        rootfs: &Path,
        memory: &Path,
    ) -> anyhow::Result<Option<Runtime>> {
        let Some(program) = programs::find(name) else {
            println!("bench: {name} is not installed here, and has no row");
            return Ok(None);
        };
        let program = programs::stage(&program, memory)?;
        let dir = memory.join(format!("{name}-containers"));
        let bundle = dir.join("bundle");
        fs::create_dir_all(&bundle)?;
        let spec = Command::new(&program).arg("spec").current_dir(&bundle).output()?;
        ensure!(spec.status.success(), "{name} spec: {}", String::from_utf8_lossy(&spec.stderr));
        adapt(&bundle.join("config.json"), rootfs)?;
        Ok(Some(Runtime { name, program, dir, bundle }))
    }

    /// Starts containers, one at a time.
    pub(crate) fn bench(&self, starts: usize) -> anyhow::Result<Row> {
        let took = first_bytes(starts, |number| self.run(number))?;
        Ok(Row::new(format!("{} run", self.name), FIRST_BYTE, took))
    }

    /// The run of the container with this number.
    pub(crate) fn run(&self, number: usize) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().env("PATH", PATH).env(COPY_DIR, &self.dir);
        command.arg("--root").arg(self.dir.join("state")).arg("run").arg("--bundle").arg(&self.bundle);
        command.arg(format!("lineup-{number}"));
        command
    }
}

/// Has the default specification run our process in our root directory, without a terminal.
fn adapt(config: &Path, rootfs: &Path) -> anyhow::Result<()> {
    let mut spec: serde_json::Value = serde_json::from_slice(&fs::read(config)?)?;
    spec["process"]["terminal"] = json!(false);
    spec["process"]["args"] = json!(PROCESS);
    spec["root"]["path"] = json!(rootfs);
    Ok(fs::write(config, serde_json::to_vec(&spec)?)?)
}
