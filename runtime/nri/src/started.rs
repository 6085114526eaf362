//! Plugins started by the daemon: executable files named `NN-name` in one directory, with their configuration
//! in another.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use proto_nri::{INDEX_VARIABLE, NAME_VARIABLE, SOCKET_VARIABLE};
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::config::NriConfig;
use crate::join::{Started, as_stdin};
use crate::name::PluginName;

/// Most started plugins: far more than nodes have.
const STARTED_MAX: usize = 64;

/// Most bytes of a plugin's configuration file.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// The program of a plugin, and its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: PluginName,
    program: PathBuf,
    config: String,
}

/// Reasons why the directories cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    #[error("reading {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}: {reason}")]
    Name { path: PathBuf, reason: String },
    #[error("{0} has more than {STARTED_MAX} plugins")]
    Many(PathBuf),
    #[error("{0} has more than {CONFIG_BYTES_MAX} bytes")]
    Long(PathBuf),
}

/// Finds the plugins to start, in the order of their names. A missing directory has none.
pub(crate) fn find(config: &NriConfig) -> Result<Vec<Found>, FindError> {
    let dir = &config.plugin_dir;
    let read_error = |path: &Path, source| FindError::Read { path: path.to_owned(), source };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(read_error(dir, error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| read_error(dir, error))?.path();
        // A dangling link is no program.
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            continue;
        }
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name =
            PluginName::of_file(file).map_err(|reason| FindError::Name { path: path.clone(), reason })?;
        if found.len() == STARTED_MAX {
            return Err(FindError::Many(dir.clone()));
        }
        let config = configuration(&config.plugin_conf_dir, &name)?;
        found.push(Found { name, program: path, config });
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// The configuration of a plugin: `NN-name.conf`, else `name.conf`, else none.
fn configuration(dir: &Path, name: &PluginName) -> Result<String, FindError> {
    for file in [format!("{name}.conf"), format!("{}.conf", name.name())] {
        let path = dir.join(file);
        match fs::metadata(&path).map(|metadata| metadata.len()) {
            Ok(length) if length > CONFIG_BYTES_MAX => return Err(FindError::Long(path)),
            Ok(_) => {
                return fs::read_to_string(&path).map_err(|source| FindError::Read { path, source });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(FindError::Read { path, source }),
        }
    }
    Ok(String::new())
}

/// Starts a plugin. Its stream is its standard input, and its environment holds only the stream's number and
/// the plugin's index and name.
pub(crate) fn start(found: Found) -> io::Result<(UnixStream, Started)> {
    let (ours, its) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let Found { name, program, config } = found;
    let process = Command::new(program)
        .env_clear()
        .env(NAME_VARIABLE, name.name())
        .env(INDEX_VARIABLE, name.index())
        .env(SOCKET_VARIABLE, "0")
        .stdin(as_stdin(its))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    Ok((UnixStream::from_std(ours)?, Started { name, config, process }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn dirs(dir: &Path) -> NriConfig {
        let config = NriConfig {
            runtime_name: String::new(),
            runtime_version: String::new(),
            socket: None,
            plugin_dir: dir.join("plugins"),
            plugin_conf_dir: dir.join("conf.d"),
            registration_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(1),
        };
        fs::create_dir_all(&config.plugin_dir).unwrap();
        fs::create_dir_all(&config.plugin_conf_dir).unwrap();
        config
    }

    fn program(config: &NriConfig, name: &str, mode: u32) {
        let path = config.plugin_dir.join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn executable_files_are_plugins_in_the_order_of_their_indexes_with_their_own_configuration_first() {
        let dir = tempfile::tempdir().unwrap();
        let config = dirs(dir.path());
        for name in ["20-b", "10-c", "10-a"] {
            program(&config, name, 0o755);
        }
        program(&config, "README", 0o644);
        fs::create_dir(config.plugin_dir.join("dir")).unwrap();
        fs::write(config.plugin_conf_dir.join("b.conf"), "for every b").unwrap();
        fs::write(config.plugin_conf_dir.join("a.conf"), "for every a").unwrap();
        fs::write(config.plugin_conf_dir.join("10-a.conf"), "for 10-a").unwrap();
        let found = find(&config).unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.name.to_string(), one.config.as_str())).collect();
        let expected = [("10-a", "for 10-a"), ("10-c", ""), ("20-b", "for every b")];
        assert_eq!(found, expected.map(|(name, config)| (name.to_owned(), config)));
    }

    #[test]
    fn a_directory_that_is_not_there_has_no_plugins_and_a_name_without_an_index_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let config = dirs(dir.path());
        let elsewhere = NriConfig { plugin_dir: dir.path().join("nowhere"), ..config.clone() };
        assert_eq!(find(&elsewhere).unwrap(), []);
        program(&config, "plugin", 0o755);
        assert!(find(&config).unwrap_err().to_string().contains("NN-name"));
    }
}
