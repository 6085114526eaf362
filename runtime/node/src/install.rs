//! The installation, step by step. Each step first checks the node's current state. A second run completes an
//! interrupted first one, and does nothing if all is done.
//!
//! ```text
//! look ─ files ─ configuration ─ units ─ check ─ daemon ─ kubelet (if asked)
//!        └ before each step the record lists its changes ┘
//! ```

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::distribution::{self, Distribution};
use crate::host::{CallError, Host};
use crate::kubelet::{self, KubeletError};
use crate::kubelet_runtime::{KubeletRuntime, kubelet_runtime};
use crate::look::{self, Refusal};
use crate::mirrors::mirrors;
use crate::payload::{CONFIGURATION, DAEMON, DEVICE_PLUGIN, Payload, PayloadError, PayloadFile};
use crate::record::{Held, InstallRecord, RecordError, StartedDaemon};
use crate::report::{Report, say};
use crate::root::{HostRoot, RootError};
use crate::settings::{self, Settings, SettingsError, UnnamedPods, Upstream};
use crate::short_unit::ShortUnit;
use crate::switch::{SwitchSpec, switch};

/// A unit for one check of the node. The check boots a guest and needs devices not present in a container.
const CHECK: ShortUnit = ShortUnit { name: "podvisor-check.service", log: "/run/podvisor-check.log" };

/// Sockets of other runtimes, beside those of distributions, for a node where no running kubelet names its
/// own.
const SOCKETS: [&str; 2] = ["/run/containerd/containerd.sock", "/run/crio/crio.sock"];

/// A requested installation.
#[derive(Clone, Debug)]
pub struct InstallSpec {
    /// Directory with the files, as `make install DESTDIR=` makes it.
    pub from: PathBuf,
    /// Socket of the other runtime; `None` for the kubelet's current one.
    pub upstream: Option<PathBuf>,
    /// Handlers of the other runtime, for a new configuration.
    pub handlers: Vec<String>,
    /// Pods for the other runtime if they name no handler, for a new configuration.
    pub unnamed_pods: UnnamedPods,
    /// The newest schema of records that the program to install reads.
    pub schema: u64,
    /// Whether to switch the kubelet to Podvisor.
    pub switch_kubelet: bool,
    /// Whether to try a switch again with which the kubelet did not keep running before.
    pub again: bool,
    /// Pause between checks of a switched kubelet.
    pub between_looks: Duration,
}

/// An incomplete installation. Running it again continues it.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The files to be installed are missing.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The node is not fit.
    #[error("nothing was changed on this node")]
    Refused(#[source] Refusal),
    /// A disk of the node failed.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The record is in use or damaged.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// systemd or another program of the node failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The configuration cannot be made or read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The kubelet cannot be switched.
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    /// A file to be installed cannot be read.
    #[error("cannot read {}, a file to be installed", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Pods cannot run here.
    #[error("the node's check failed, and the daemon was not restarted:\n{0}")]
    Check(String),
    /// The node has several runtimes.
    #[error("this node has several runtimes ({}): name the kubelet's with --upstream", .0.join(", "))]
    Runtimes(Vec<String>),
    /// The node's own pods would have no runtime.
    #[error(
        "{CONFIGURATION} on the node names no upstream.socket, so pods of the node itself would be refused: \
         the kubelet was not switched; name one, or remove the file and run this again"
    )]
    NoUpstream,
}

/// Installs Podvisor on the node. Returns the kubelet's runtime after that.
///
/// # Errors
/// The node is not fit, a step failed, or another installation is under way.
pub fn install(
    root: &HostRoot,
    host: &dyn Host,
    spec: &InstallSpec,
    report: Report<'_>,
) -> Result<KubeletRuntime, InstallError> {
    let payload = Payload::read(&spec.from)?;
    // Before creating the lock file: a refused node stays as it is.
    let before = Held::peek(root)?.unwrap_or_default();
    look::look(root, &payload, &before).map_err(InstallError::Refused)?;
    look::downgrade(root, host, &before, spec.schema).map_err(InstallError::Refused)?;
    let held = Held::take(root)?;
    let mut record = held.record.clone().unwrap_or_default();
    say(report, "node", "has systemd, KVM and room");
    files(root, &payload, &mut record, report)?;
    configuration(root, host, spec, &payload, &mut record, report)?;
    host.run("systemctl", &["daemon-reload"])?;
    if record.restart_due {
        check(root, host, &payload, report)?;
    }
    daemon(root, host, spec.schema, &mut record, report)?;
    if spec.switch_kubelet {
        let settings = Settings::read(root)?.ok_or(InstallError::NoUpstream)?;
        if settings.upstream.is_none() {
            return Err(InstallError::NoUpstream);
        }
        let attempt = SwitchSpec { again: spec.again, between_looks: spec.between_looks };
        let done = switch(root, host, &mut record, &settings.socket, attempt)?;
        say(report, "kubelet", done);
        return Ok(KubeletRuntime::Podvisor);
    }
    say(
        report,
        "kubelet",
        if record.kubelet.is_some() { "uses Podvisor since before" } else { "is left as it is" },
    );
    runtime_of_kubelet(root, host, &record)
}

/// The kubelet's runtime after an installation without a switch. A kubelet that does not run now has the
/// runtime of an earlier switch.
fn runtime_of_kubelet(
    root: &HostRoot,
    host: &dyn Host,
    record: &InstallRecord,
) -> Result<KubeletRuntime, InstallError> {
    let Some(settings) = Settings::read(root)? else { return Ok(KubeletRuntime::Unknown) };
    let is_switched = record.kubelet.as_ref().is_some_and(|switch| !switch.restart_due);
    Ok(match kubelet_runtime(root, host, &settings.socket)? {
        KubeletRuntime::Unknown if is_switched => KubeletRuntime::Podvisor,
        runtime => runtime,
    })
}

/// Installs files that differ, and removes obsolete files of an earlier installation.
fn files(
    root: &HostRoot,
    payload: &Payload,
    record: &mut InstallRecord,
    report: Report<'_>,
) -> Result<(), InstallError> {
    let mut differing = Vec::new();
    for file in &payload.files {
        if differs(root, file)? {
            differing.push(file);
        }
    }
    let new: BTreeSet<PathBuf> = payload.files.iter().map(|file| file.to.clone()).collect();
    let gone: Vec<PathBuf> = record.files.difference(&new).cloned().collect();
    record.prefix.clone_from(&payload.prefix);
    record.files.extend(new.iter().cloned());
    record.restart_due |= !differing.is_empty();
    if !differing.is_empty() {
        // The kubelet may keep running with another release.
        record.fallen = None;
    }
    record.save(root)?;
    for file in &differing {
        let source = |source| InstallError::Source { path: file.from.clone(), source };
        let mut content = File::open(&file.from).map_err(source)?;
        root.put(&file.to, file.mode, &mut content)?;
    }
    for path in &gone {
        root.remove(path)?;
    }
    record.files = new;
    record.save(root)?;
    let (all, put) = (payload.files.len(), differing.len());
    say(
        report,
        "files",
        format!("{put} of {all} written below {}, {} taken away", payload.prefix.display(), gone.len()),
    );
    Ok(())
}

fn differs(root: &HostRoot, file: &PayloadFile) -> Result<bool, InstallError> {
    let source = |source| InstallError::Source { path: file.from.clone(), source };
    if root.is_link(&file.to)? {
        return Ok(true);
    }
    let Some(there) = root.file(&file.to)? else { return Ok(true) };
    let metadata = there.metadata().map_err(source)?;
    if metadata.len() != file.bytes || metadata.permissions().mode() & 0o7777 != file.mode {
        return Ok(true);
    }
    let mut ours = io::BufReader::with_capacity(1 << 16, File::open(&file.from).map_err(source)?);
    let mut theirs = io::BufReader::with_capacity(1 << 16, there);
    let (mut one, mut other) = ([0; 1 << 13], [0; 1 << 13]);
    loop {
        let count = ours.read(&mut one).map_err(source)?;
        if count == 0 {
            return Ok(false);
        }
        if theirs.read_exact(&mut other[..count]).is_err() || one[..count] != other[..count] {
            return Ok(true);
        }
    }
}

/// Writes a configuration if there is none.
fn configuration(
    root: &HostRoot,
    host: &dyn Host,
    spec: &InstallSpec,
    payload: &Payload,
    record: &mut InstallRecord,
    report: Report<'_>,
) -> Result<(), InstallError> {
    if let Some(settings) = Settings::read(root)? {
        let upstream = settings.upstream.map_or("none".into(), |path| path.display().to_string());
        say(report, "configuration", format!("{CONFIGURATION} stays as it is; other runtime: {upstream}"));
        return Ok(());
    }
    let socket = match &spec.upstream {
        Some(socket) => Some(socket.clone()),
        None => other_runtime(root, host)?,
    };
    let text = match &socket {
        Some(socket) => {
            let (handlers, unnamed_pods) = (spec.handlers.clone(), spec.unnamed_pods);
            settings::with_upstream(
                &payload.configuration,
                &Upstream { socket: socket.clone(), handlers, unnamed_pods },
            )?
        }
        None => payload.configuration.clone(),
    };
    let text = match own_network(root, host)? {
        Some((configurations, plugins)) => settings::with_cni(&text, &configurations, &plugins)?,
        None => text,
    };
    let mirrors = match &socket {
        Some(socket) => mirrors(root, host, socket)?,
        None => None,
    };
    let text = match &mirrors {
        Some(directory) => settings::with_mirrors(&text, directory)?,
        None => text,
    };
    record.restart_due = true;
    record.save(root)?;
    root.write(Path::new(CONFIGURATION), &text)?;
    let upstream = socket.map_or("none".into(), |path| path.display().to_string());
    say(report, "configuration", format!("{CONFIGURATION} written; other runtime: {upstream}"));
    if let Some(directory) = mirrors {
        say(report, "mirrors", format!("those of the other runtime, in {}", directory.display()));
    }
    Ok(())
}

/// Finds the directories of the network that a distribution on the node has of its own.
fn own_network(root: &HostRoot, host: &dyn Host) -> Result<Option<(PathBuf, PathBuf)>, KubeletError> {
    let Some(distribution) = Distribution::with_kubelet_inside(root)? else { return Ok(None) };
    Ok(distribution.cni(root, &kubelet::started_around(root, host)?)?)
}

/// Finds the runtime of the node's kubelet, other than Podvisor.
fn other_runtime(root: &HostRoot, host: &dyn Host) -> Result<Option<PathBuf>, InstallError> {
    if let Some(socket) = kubelet::socket_in_use(root, host)?
        && !socket.ends_with("podvisor.sock")
    {
        return Ok(Some(socket));
    }
    let sockets: BTreeSet<_> =
        SOCKETS.into_iter().chain(distribution::ALL.iter().map(|one| one.containerd)).collect();
    let mut found = Vec::new();
    for socket in sockets {
        if root.kind(Path::new(socket))?.is_some() {
            found.push(socket.to_owned());
        }
    }
    match found.len() {
        0 | 1 => Ok(found.pop().map(PathBuf::from)),
        _ => Err(InstallError::Runtimes(found)),
    }
}

/// Checks whether pods can run on the node, with the newly installed program.
fn check(
    root: &HostRoot,
    host: &dyn Host,
    payload: &Payload,
    report: Report<'_>,
) -> Result<(), InstallError> {
    let commands = format!("TimeoutStartSec=300\nExecStart={} check\n", payload.program().display());
    let (outcome, said) = CHECK.run(root, host, &commands)?;
    for line in said.lines() {
        say(report, "check", line.trim());
    }
    match outcome {
        Ok(()) => Ok(()),
        // A program without a suitable C library prints its own error.
        Err(CallError::Failed { said: why, .. }) => {
            let passed = |line: &&str| line.starts_with("ok") || line.starts_with("note");
            let failed: Vec<&str> = said.lines().filter(|line| !passed(line)).collect();
            Err(InstallError::Check(if failed.is_empty() { why } else { failed.join("\n") }))
        }
        Err(error) => Err(error.into()),
    }
}

/// Enables the daemon at boot, and starts it now. It is restarted if something has changed.
fn daemon(
    root: &HostRoot,
    host: &dyn Host,
    schema: u64,
    record: &mut InstallRecord,
    report: Report<'_>,
) -> Result<(), InstallError> {
    host.run("systemctl", &["enable", DAEMON])?;
    let state = host.run("systemctl", &["show", "--property=ActiveState", "--value", DAEMON])?;
    let runs = !record.restart_due && state.trim() == "active";
    if !runs {
        host.run("systemctl", &["restart", DAEMON])?;
        host.run("systemctl", &["try-restart", DEVICE_PLUGIN])?;
    }
    record.restart_due = false;
    record.started = Some(StartedDaemon { invocation: look::invocation(host)?, schema });
    record.save(root)?;
    say(report, "daemon", if runs { "runs" } else { "started; existing pods go on" });
    Ok(())
}

/// Removes the leftovers of an interrupted check.
pub(crate) fn clear(root: &HostRoot) -> Result<(), RootError> {
    CHECK.remove(root)
}
