//! The directories of a private daemon, never those of the node's daemon: the latter may be down for a moment
//! only, and a second daemon would treat its pods as dead.
//!
//! ```text
//!   <paths.state>/private/0/   lock, command.lock, images, records, logs of the run
//!                        /1/   for a second concurrent command
//!                   leases/    addresses, shared by all private daemons
//!   <paths.run>/private/0/     sockets, configuration, log
//!                      /1/
//! ```
//! A command takes the first free place. So the next command finds the images, and removes leftovers of a
//! killed daemon.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use runtime_pod::DaemonDirs;
use runtime_spec::TemplateScope;

use super::logs;
use crate::config::{Config, Metrics, Paths, Streaming, Upstream};
use crate::state_lock::{self, StateLock, StateLockError};

/// Commands with a private daemon at the same time. Each has a VM. A host for more of them needs a daemon.
const PLACES_MAX: usize = 64;

/// Directory of all places, below `paths.state` and below `paths.run`.
const PRIVATE: &str = "private";

/// Name of the command's lock file, so no two commands start a daemon in one place.
const COMMAND_LOCK: &str = "command.lock";

/// The directories of one private daemon, held while the command runs.
#[derive(Debug)]
pub(super) struct Place {
    /// Directory kept for the next command.
    pub(super) state: PathBuf,
    /// Directory removed with the daemon.
    pub(super) run: PathBuf,
    /// Address leases of the private daemons' own network, used if the host has none.
    pub(super) leases: PathBuf,
    _lock: File,
}

impl Place {
    /// Takes the first place without a command or a daemon.
    pub(super) fn take(config: &Config) -> anyhow::Result<Place> {
        let (states, runs) = (config.paths.state.join(PRIVATE), config.paths.run.join(PRIVATE));
        for number in 0..PLACES_MAX {
            let (state, run) = (states.join(number.to_string()), runs.join(number.to_string()));
            if let Some(lock) =
                lock(&state).with_context(|| format!("making {} (are you root?)", state.display()))?
            {
                // A killed command may have left a log. Its pod is removed by the daemon.
                let left = logs::clear(&state);
                left.with_context(|| format!("removing old logs in {}", state.display()))?;
                return Ok(Place { state, run, leases: leases(config), _lock: lock });
            }
        }
        bail!("{PLACES_MAX} commands with a private daemon run already in {}", states.display())
    }

    /// The configuration of the place's daemon: the node's, with other directories.
    pub(super) fn configure(&self, config: &Config) -> Config {
        let mut private = config.clone();
        private.paths.state.clone_from(&self.state);
        private.paths.run.clone_from(&self.run);
        private.paths.socket = None;
        // Plain HTTP on loopback, since this command is the only client.
        private.streaming = Streaming::default();
        // The node's daemon listens there.
        private.metrics = Metrics::default();
        // Each pod is in a VM of this daemon.
        private.upstream = Upstream::default();
        // Nothing is prepared in advance: with a single pod it would never be used.
        private.cni.spare_namespaces = 0;
        private.handler = config.handlers().0;
        for handler in &mut private.handler {
            (handler.template, handler.spare_vms) = (TemplateScope::Off, 0);
        }
        private
    }

    /// Removes the directory of the daemon's run. It stays if a pod of an earlier command is in it.
    pub(super) fn clear(&self) -> std::io::Result<()> {
        match fs::remove_dir(self.run.join("pods")) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => return Ok(()),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::remove_dir_all(&self.run)?;
        // It may contain another command's place.
        let _ = self.run.parent().map(fs::remove_dir);
        Ok(())
    }
}

/// The directories of the node's daemon, first, and of all places of private ones.
pub(crate) fn all(config: &Config) -> Vec<DaemonDirs> {
    let Paths { state, run, .. } = &config.paths;
    let places = fs::read_dir(state.join(PRIVATE)).into_iter().flatten().flatten();
    let numbers = places.filter_map(|place| place.file_name().to_str()?.parse::<usize>().ok());
    let mut numbers: Vec<usize> = numbers.filter(|number| *number < PLACES_MAX).collect();
    numbers.sort_unstable();
    let private = numbers.into_iter().map(|number| {
        let at = |dir: &Path| dir.join(PRIVATE).join(number.to_string());
        DaemonDirs { state_dir: at(state), run_dir: at(run) }
    });
    std::iter::once(config.dirs()).chain(private).collect()
}

/// The directory of the address leases of the private daemons' network.
pub(crate) fn leases(config: &Config) -> PathBuf {
    config.paths.state.join(PRIVATE).join("leases")
}

/// Both locks of a place. No daemon can start there meanwhile.
#[derive(Debug)]
pub(crate) struct Hold {
    command: File,
    _state: StateLock,
}

/// Whether a command has the place, or a killed command's daemon is still ending. Creates nothing.
pub(crate) fn is_used(state: &Path) -> std::io::Result<bool> {
    Ok(state_lock::is_locked(&state.join(COMMAND_LOCK))? || StateLock::is_held(state)?)
}

/// Locks a place. `None` if a command has it, or a killed command's daemon is still ending.
fn lock(state: &Path) -> anyhow::Result<Option<File>> {
    Ok(hold(state)?.map(|hold| hold.command))
}

/// Locks a place, including its daemon's lock.
pub(crate) fn hold(state: &Path) -> anyhow::Result<Option<Hold>> {
    fs::create_dir_all(state)?;
    let file = File::options().write(true).create(true).truncate(false).open(state.join(COMMAND_LOCK))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Ok(None),
        Err(fs::TryLockError::Error(error)) => return Err(error.into()),
    }
    match StateLock::take(state) {
        Ok(lock) => Ok(Some(Hold { command: file, _state: lock })),
        Err(StateLockError::Held { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &Path) -> Config {
        let mut config = Config::default();
        config.paths.state = dir.join("state");
        config.paths.run = dir.join("run");
        config.paths.socket = Some(dir.join("node.sock"));
        config.metrics.address = Some("127.0.0.1:9134".parse().unwrap());
        config.upstream.socket = Some("/run/containerd/containerd.sock".into());
        config
    }

    #[test]
    fn a_private_daemon_has_nothing_of_the_nodes_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let node = config(dir.path());
        let place = Place::take(&node).unwrap();
        let private = place.configure(&node);
        // Neither the node's own directory, nor one used by the node's daemon.
        for theirs in ["", "pods", "images"] {
            assert_ne!(private.paths.state, node.paths.state.join(theirs));
            assert_ne!(private.paths.run, node.paths.run.join(theirs));
        }
        assert!(private.handlers().0.iter().all(|handler| handler.template == TemplateScope::Off));
        assert!(private.socket().starts_with(&private.paths.run), "{}", private.socket().display());
        assert!(private.metrics.address.is_none() && private.upstream.socket.is_none());
        let _node_lock = StateLock::take(&node.paths.state).unwrap();
        StateLock::take(&private.paths.state).unwrap();
    }

    #[test]
    fn a_run_directory_with_a_pod_of_an_earlier_command_stays() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::take(&config(dir.path())).unwrap();
        let left = place.run.join("pods/0123");
        fs::create_dir_all(&left).unwrap();
        place.clear().unwrap();
        assert!(left.exists());
        fs::remove_dir(&left).unwrap();
        place.clear().unwrap();
        assert!(!place.run.exists());
    }

    #[test]
    fn commands_at_the_same_time_have_a_place_each_and_a_later_one_the_first_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = Place::take(&config(dir.path())).unwrap();
        let second = Place::take(&config(dir.path())).unwrap();
        assert_ne!(first.state, second.state);
        assert_ne!(first.run, second.run);
        let state = first.state.clone();
        let log = logs::make(&state, "killed").unwrap().keep();
        // The command was killed, and its daemon still ends.
        drop(first);
        let ending = StateLock::take(&state).unwrap();
        assert_ne!(Place::take(&config(dir.path())).unwrap().state, state);
        drop(ending);
        assert!(log.exists());
        assert_eq!(Place::take(&config(dir.path())).unwrap().state, state);
        assert!(!log.exists());
        let node = config(dir.path());
        let states: Vec<_> = all(&node).into_iter().map(|dirs| dirs.state_dir).collect();
        let third = second.state.with_file_name("2");
        assert_eq!(states, [node.paths.state, state, second.state.clone(), third]);
    }
}
