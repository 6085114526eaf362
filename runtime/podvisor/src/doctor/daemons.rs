//! The daemons of this node: the configured one, and private ones of commands. A daemon runs if the lock of
//! its state is held.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use runtime_pod::DaemonDirs;
use runtime_pod::doctor::{DaemonPlace, Life};

use crate::config::Config;
use crate::run::place::{self, Hold};
use crate::state_lock::{StateLock, StateLockError};

/// The interval between two looks at the lock of a command that may end.
const LOCK_INTERVAL: Duration = Duration::from_millis(200);

/// A daemon's place, and the locks to keep it from starting.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) daemon: DaemonPlace,
    /// Whether it is a command's, which ends with it.
    pub(super) is_private: bool,
    _node: Option<StateLock>,
    _private: Option<Hold>,
}

impl Place {
    /// Returns once the command has ended whose daemon ran here. The node's daemon does not end so: it may be
    /// back at once.
    pub(super) async fn ended(&self) {
        // A lock that cannot be asked for may be held.
        while !self.is_private || place::is_used(&self.daemon.dirs.state_dir).unwrap_or(true) {
            tokio::time::sleep(LOCK_INTERVAL).await;
        }
    }
}

/// Finds the daemons. With `hold`, stopped daemons are kept from starting until their places are dropped.
pub(super) fn find(config: &Config, hold: bool) -> anyhow::Result<Vec<Place>> {
    let mut places = place::all(config).into_iter();
    let node = places.next().map(|dirs| node(config, dirs, hold));
    node.into_iter().chain(places.map(|dirs| private(dirs, hold))).collect()
}

fn node(config: &Config, dirs: DaemonDirs, hold: bool) -> anyhow::Result<Place> {
    let (lock, runs) = match (hold, dirs.state_dir.exists()) {
        // Nothing is created where no daemon ever ran.
        (_, false) => (None, false),
        (true, true) => match StateLock::take(&dirs.state_dir) {
            Ok(lock) => (Some(lock), false),
            Err(StateLockError::Held { .. }) => (None, true),
            Err(error) => return Err(error.into()),
        },
        (false, true) => (None, is_held(&dirs.state_dir, StateLock::is_held)?),
    };
    let life = if runs { Life::Serving } else { Life::Stopped };
    let socket = config.socket();
    // Its VMs would count as leftovers.
    if !runs && UnixStream::connect(&socket).is_ok() {
        bail!(
            "a daemon serves on {}, and its state is not the one in {}: name its configuration with --config, or \
             restart it with this one",
            socket.display(),
            dirs.state_dir.display()
        );
    }
    let daemon = DaemonPlace { dirs, socket, life };
    Ok(Place { daemon, is_private: false, _node: lock, _private: None })
}

fn private(dirs: DaemonDirs, hold: bool) -> anyhow::Result<Place> {
    let lock = if hold { place::hold(&dirs.state_dir)? } else { None };
    let runs = lock.is_none() && is_held(&dirs.state_dir, place::is_used)?;
    let life = if runs { Life::Serving } else { Life::Over };
    let daemon = DaemonPlace { socket: dirs.run_dir.join("podvisor.sock"), dirs, life };
    Ok(Place { daemon, is_private: true, _node: None, _private: lock })
}

fn is_held(state: &Path, probe: impl Fn(&Path) -> std::io::Result<bool>) -> anyhow::Result<bool> {
    probe(state).with_context(|| format!("looking at the lock in {}", state.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lives(config: &Config, hold: bool) -> Vec<Life> {
        find(config, hold).unwrap().into_iter().map(|place| place.daemon.life).collect()
    }

    #[test]
    fn a_daemon_with_another_state_is_no_stopped_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.paths.state = dir.path().join("state");
        config.paths.run = dir.path().to_owned();
        let _daemon = std::os::unix::net::UnixListener::bind(config.socket()).unwrap();
        for hold in [false, true] {
            let error = find(&config, hold).unwrap_err().to_string();
            assert!(error.contains("a daemon serves on ") && error.contains("/state: "), "{error}");
        }
    }

    #[test]
    fn a_daemon_runs_while_it_has_its_lock_and_looking_makes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.paths.state = dir.path().join("state");
        config.paths.run = dir.path().join("run");
        for hold in [false, true] {
            assert_eq!(lives(&config, hold), [Life::Stopped]);
        }
        assert!(!config.paths.state.exists());
        let daemon = StateLock::take(&config.paths.state).unwrap();
        let private = config.paths.state.join("private/0");
        std::fs::create_dir_all(&private).unwrap();
        let command = StateLock::take(&private).unwrap();
        for hold in [false, true] {
            assert_eq!(lives(&config, hold), [Life::Serving, Life::Serving]);
        }
        drop((daemon, command));
        assert_eq!(lives(&config, false), [Life::Stopped, Life::Over]);
        let held = find(&config, true).unwrap();
        assert_eq!(
            held.iter().map(|place| place.daemon.life).collect::<Vec<_>>(),
            [Life::Stopped, Life::Over]
        );
        for state in [&config.paths.state, &private] {
            assert!(matches!(StateLock::take(state), Err(StateLockError::Held { .. })));
        }
        drop(held);
        StateLock::take(&config.paths.state).unwrap();
    }
}
