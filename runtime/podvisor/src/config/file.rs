//! Reads the configuration file. It is an operator's file, and may be anything: a directory, a pipe, endless,
//! or changing during the read. An error is one line with file, line and key.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::libc::O_NONBLOCK;
use toml::de::DeTable;

use super::place::{Lines, Places};
use super::setting::{Origin, Setting, settings};
use super::{Config, DEFAULT_FILE, check, filter, tenancy};

/// The variable to override `log.level`.
pub(crate) const LOG_VARIABLE: &str = "PODVISOR_LOG";

/// The key overridden by [`LOG_VARIABLE`].
pub(super) const LOG_KEY: &str = "log.level";

/// Longest file, in bytes: about a thousand handlers. A larger one is no configuration.
const BYTES_MAX: u64 = 1 << 20;

/// Number of attempts to read a file while it changes.
const READS_MAX: u32 = 5;

/// The pause before a changed file is read again: most programs write a file in one go.
const READ_PAUSE: Duration = Duration::from_millis(20);

/// A configuration as read, with the origin of each value.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// The file, even if it does not exist.
    pub(crate) file: PathBuf,
    /// Whether the file exists.
    pub(crate) is_there: bool,
    /// All keys.
    pub(crate) settings: Vec<Setting>,
    /// The reason for ignoring [`LOG_VARIABLE`], if it is set but invalid.
    pub(crate) variable_refused: Option<String>,
}

/// An invalid configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read the configuration {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("configuration {place}: {message}")]
    Wrong { place: WrongPlace, message: String },
}

/// A place in the file: file, line and key, as far as known.
#[derive(Debug)]
pub(crate) struct WrongPlace {
    path: PathBuf,
    line: Option<usize>,
    key: Option<String>,
}

impl fmt::Display for WrongPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        self.line.map_or(Ok(()), |line| write!(f, ", line {line}"))?;
        self.key.as_ref().map_or(Ok(()), |key| write!(f, ": {key}"))
    }
}

/// Reads the given file, or the default file if it exists, or else takes the defaults. Then applies the
/// environment.
pub(crate) fn load(path: Option<&Path>) -> Result<Loaded, ConfigError> {
    let loaded = load_file(path)?;
    Ok(match std::env::var(LOG_VARIABLE) {
        Ok(filter) if !filter.is_empty() => loaded.overridden(filter),
        _ => loaded,
    })
}

/// Reads the file as [`load`] does, but ignores the environment.
pub(super) fn load_file(path: Option<&Path>) -> Result<Loaded, ConfigError> {
    let file = path.unwrap_or(Path::new(DEFAULT_FILE));
    match read(file) {
        Ok(text) => parse(file, &text),
        Err(error) if path.is_none() && error.kind() == io::ErrorKind::NotFound => {
            Ok(Loaded { is_there: false, ..parse(file, "")? })
        }
        Err(source) => Err(ConfigError::Read { path: file.to_owned(), source }),
    }
}

/// The CRI socket set in a file, even if the file has mistakes elsewhere.
pub(super) fn likely_socket(path: Option<&Path>) -> PathBuf {
    let text = read(path.unwrap_or(Path::new(DEFAULT_FILE))).unwrap_or_default();
    let (table, _) = DeTable::parse_recoverable(&text);
    let paths = table.get_ref().get("paths").and_then(|paths| paths.get_ref().as_table());
    let set = |key: &str| paths.and_then(|paths| paths.get(key)?.get_ref().as_str()).map(PathBuf::from);
    let mut config = Config::default();
    config.paths.socket = set("socket");
    config.paths.run = set("run").unwrap_or(config.paths.run);
    config.socket()
}

impl Loaded {
    /// Overrides the file's filter of the log by the environment's.
    fn overridden(mut self, level: String) -> Loaded {
        if let Err(why) = filter::parse(&level) {
            self.variable_refused = Some(why);
            return self;
        }
        if let Some(setting) = self.settings.iter_mut().find(|setting| setting.key == LOG_KEY) {
            setting.value = Some(level.clone().into());
            setting.origin = Origin::Environment { variable: LOG_VARIABLE.into() };
        }
        self.config.log.level = level;
        self
    }
}

/// Parses the file's text, and checks it.
pub(super) fn parse(path: &Path, text: &str) -> Result<Loaded, ConfigError> {
    let places = Places::of(text);
    let wrong = |line, key, message| {
        Err(ConfigError::Wrong { place: WrongPlace { path: path.to_owned(), line, key }, message })
    };
    let mut config: Config = match toml::from_str(text) {
        Ok(config) => config,
        Err(error) => {
            let at = error.span().map(|span| span.start);
            let key = at.and_then(|at| places.key_at(at)).map(str::to_owned);
            let message = error.message().trim().replace('\n', "; ");
            return wrong(at.map(|at| Lines::of(text).at(at)), key, message);
        }
    };
    let preset = tenancy::preset(&mut config, |key| places.line(key).is_some());
    if let Err(found) = check::check(&config) {
        return wrong(places.line(&found.key), Some(found.key), found.message);
    }
    let origin = |key: &str| match places.line(key) {
        Some(line) => Origin::File { file: path.to_owned(), line },
        None if preset.iter().any(|of_preset| of_preset == key) => {
            Origin::Preset { key: tenancy::TENANCY.into() }
        }
        None => Origin::Default,
    };
    let settings = settings(&config, origin);
    Ok(Loaded { config, file: path.to_owned(), is_there: true, settings, variable_refused: None })
}

/// Reads the whole file in one consistent version.
fn read(path: &Path) -> io::Result<String> {
    for _ in 0..READS_MAX {
        if let Some(text) = read_once(path)? {
            return Ok(text);
        }
        std::thread::sleep(READ_PAUSE);
    }
    Err(io::Error::other("it changes while it is read"))
}

/// Returns `None` if the file has changed meanwhile.
fn read_once(path: &Path) -> io::Result<Option<String>> {
    // Opening a named pipe would block until it has a writer.
    let mut file = File::options().read(true).custom_flags(O_NONBLOCK).open(path)?;
    let before = file.metadata()?;
    if !before.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut text = String::new();
    (&mut file).take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB"));
    }
    let stamp = |metadata: &Metadata| (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    Ok((stamp(&before) == stamp(&file.metadata()?)).then_some(text))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn message(error: ConfigError) -> String {
        format!("{:#}", anyhow::Error::from(error))
    }

    fn refused(text: &str) -> String {
        message(parse(Path::new("/etc/podvisor/config.toml"), text).unwrap_err())
    }

    #[test]
    fn an_error_is_one_line_with_file_line_and_key() {
        for (text, place) in [
            ("[paths]\nstate = 7\n", ", line 2: paths.state: "),
            ("[paths]\nstate = \"/x\"\nstaet = \"/y\"\n", ", line 3: paths.staet: "),
            ("\n[pahts]\nstate = \"/x\"\n", ", line 2: pahts: "),
            ("[metrics]\naddress = \"here\"\n", ", line 2: metrics.address: "),
            (
                "[[handler]]\nname = \"a\"\n[[handler]]\nmemory_mib = \"1G\"\n",
                ", line 4: handler[1].memory_mib: ",
            ),
            ("[[handler]]\nname = \"a\"\n[[handler]]\nname = \"a\"\n", ", line 4: handler[1].name: "),
            ("[log]\nlevel = \"inof\"\n", ", line 2: log.level: "),
            ("[log]\nformat = \"xml\"\n", ", line 2: log.format: "),
            ("[cni]\nbin_dirs = [\n\"/a\",\n3]\n", "cni.bin_dirs: "),
            ("[paths]\nstate = \"/x\n", ", line 2: "),
            ("[paths\n", ", line 1: "),
        ] {
            let message = refused(text);
            assert!(message.starts_with("configuration /etc/podvisor/config.toml, line "), "{message}");
            assert!(message.contains(place) && message.lines().count() == 1, "{place}: {message}");
        }
    }

    #[test]
    fn what_is_no_file_of_text_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let huge = dir.path().join("huge");
        File::create(&huge).unwrap().set_len(BYTES_MAX + 1).unwrap();
        let binary = dir.path().join("binary");
        fs::write(&binary, [0xff, 0xfe, 0x00]).unwrap();
        for (path, why) in [
            (dir.path().to_owned(), "no regular file"),
            (pipe, "no regular file"),
            (PathBuf::from("/dev/zero"), "no regular file"),
            (huge, "larger than 1 MiB"),
            (binary, "UTF-8"),
            (dir.path().join("absent"), "No such file"),
        ] {
            let message = message(load_file(Some(&path)).unwrap_err());
            assert!(message.contains(&path.display().to_string()) && message.contains(why), "{message}");
        }
    }

    #[test]
    fn a_file_that_may_not_be_read_is_refused() {
        if nix::unistd::geteuid().is_root() {
            eprintln!("skipped: root reads everything");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        let message = message(load_file(Some(&path)).unwrap_err());
        assert!(message.contains("Permission denied"), "{message}");
    }

    #[test]
    fn the_environment_comes_before_the_file_and_the_file_before_the_default() {
        let origin =
            |loaded: &Loaded| loaded.settings.iter().find(|setting| setting.key == LOG_KEY).unwrap().clone();
        let of_default = parse(Path::new("f"), "").unwrap();
        assert_eq!(origin(&of_default).origin, Origin::Default);
        let of_file = parse(Path::new("f"), "[log]\n\nlevel = \"warn\"\n").unwrap();
        assert_eq!(origin(&of_file).origin, Origin::File { file: "f".into(), line: 3 });
        let of_variable = of_file.clone().overridden("runtime_pod=debug".into());
        let setting = origin(&of_variable);
        assert_eq!(setting.origin, Origin::Environment { variable: LOG_VARIABLE.into() });
        assert_eq!(setting.value, Some("runtime_pod=debug".into()));
        assert_eq!(of_variable.config.log.level, "runtime_pod=debug");
        let wrong = of_file.overridden("runtime_pod=loud".into());
        assert!(wrong.variable_refused.is_some() && wrong.config.log.level == "warn");
    }

    #[test]
    fn the_socket_is_found_in_a_file_that_is_wrong_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        for (text, socket) in [
            ("[paths]\nrun = \"/r\"\n[cni]\nconf_dirr = 1\n[", "/r/podvisor.sock"),
            ("[paths]\nrun = \"/r\"\nsocket = \"/s\"\nstate = 1\n", "/s"),
            ("[paths]\nrun = 1\n", "/run/podvisor/podvisor.sock"),
            ("]", "/run/podvisor/podvisor.sock"),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(likely_socket(Some(&path)), Path::new(socket), "{text}");
        }
    }
}
