//! Finds and reads the network configuration: the first file of the directory, in lexical order, that is
//! valid. Owns the checks of its form. Runs nothing and keeps nothing: every call reads the directory as it is now.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use crate::NetError;

/// The largest configuration that is read. Real ones are a few KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The CNI versions whose results have the shape that `result` reads, oldest first.
pub(crate) const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// One network: a chain of plugins under one name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NetworkList {
    /// The file that the network was read from, for errors.
    pub(crate) file: PathBuf,
    /// The network's name.
    pub(crate) name: String,
    /// The CNI version of the plugins' input: the newest that both sides know.
    pub(crate) version: &'static str,
    /// The plugins' configurations, never empty; each is an object with a plain `type`.
    pub(crate) plugins: Vec<Map<String, Value>>,
}

/// The result of reading a directory.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The network to use.
    pub(crate) list: NetworkList,
    /// The files before it that could not be used.
    pub(crate) skipped: Vec<NetError>,
}

/// Reads the network of `dir`.
///
/// # Errors
/// `NoConfig` if there is no candidate; else the error of the first one.
pub(crate) fn load(dir: &Path) -> Result<Loaded, NetError> {
    let mut skipped = Vec::new();
    for file in candidates(dir)? {
        match read(&file).and_then(|text| parse(&file, &text)) {
            Ok(list) => return Ok(Loaded { list, skipped }),
            Err(error) => skipped.push(error),
        }
    }
    Err(skipped.into_iter().next().unwrap_or_else(|| NetError::NoConfig { dir: dir.to_owned() }))
}

/// Lists `*.conflist`, `*.conf` and `*.json`, in lexical order. An absent directory holds none.
fn candidates(dir: &Path) -> Result<Vec<PathBuf>, NetError> {
    let failed = |source| NetError::File { action: "read", path: dir.to_owned(), source };
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let known = path.extension().is_some_and(|e| e == "conflist" || e == "conf" || e == "json");
        if known && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Result<Vec<u8>, NetError> {
    let failed = |source| NetError::File { action: "read", path: file.to_owned(), source };
    let mut text = Vec::new();
    let opened = File::open(file).map_err(failed)?;
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong(file, "file", "is larger than 1 MiB"));
    }
    Ok(text)
}

/// Reads one configuration: a list, or a single plugin, which becomes a list of one.
pub(crate) fn parse(file: &Path, text: &[u8]) -> Result<NetworkList, NetError> {
    let top: Map<String, Value> = serde_json::from_slice(text).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        wrong(file, place, format!("not a JSON object: {error}"))
    })?;
    let name = top.get("name").and_then(Value::as_str).unwrap_or_default();
    if !plain_name(name) {
        let reason = "must be a letter or digit, then letters, digits, '_', '.' and '-'";
        return Err(wrong(file, "name", reason));
    }
    let version = version(file, &top)?;
    let is_list = top.contains_key("plugins") || file.extension().is_some_and(|e| e == "conflist");
    let plugins = if is_list { plugins_of(file, &top)? } else { vec![plugin(file, "type", &top)?] };
    Ok(NetworkList { file: file.to_owned(), name: name.to_owned(), version, plugins })
}

fn plugins_of(file: &Path, top: &Map<String, Value>) -> Result<Vec<Map<String, Value>>, NetError> {
    let entries = top.get("plugins").and_then(Value::as_array).filter(|entries| !entries.is_empty());
    let entries =
        entries.ok_or_else(|| wrong(file, "plugins", "must be an array with at least one plugin"))?;
    let mut plugins = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        let place = format!("plugins[{number}]");
        let entry = entry.as_object().ok_or_else(|| wrong(file, place.as_str(), "must be an object"))?;
        plugins.push(plugin(file, &format!("{place}.type"), entry)?);
    }
    Ok(plugins)
}

fn plugin(file: &Path, place: &str, entry: &Map<String, Value>) -> Result<Map<String, Value>, NetError> {
    // The type becomes a file name below the plugin directories, so it must stay one.
    if !entry.get("type").and_then(Value::as_str).is_some_and(plain_name) {
        let reason = "must name a plugin: a letter or digit, then letters, digits, '_', '.' and '-'";
        return Err(wrong(file, place, reason));
    }
    Ok(entry.clone())
}

/// Chooses the newest version that both the file (`cniVersion`, and `cniVersions` since 1.1.0) and we know.
fn version(file: &Path, top: &Map<String, Value>) -> Result<&'static str, NetError> {
    let one = top.get("cniVersion").and_then(Value::as_str);
    let many = top.get("cniVersions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let offered: Vec<&str> = one.into_iter().chain(many.iter().filter_map(Value::as_str)).collect();
    let newest = VERSIONS.iter().rev().find(|known| offered.contains(known)).copied();
    newest.ok_or_else(|| {
        let offered = if offered.is_empty() { "none".to_owned() } else { offered.join(", ") };
        let reason = format!("{offered} given; supported are {}", VERSIONS.join(", "));
        wrong(file, "cniVersion", reason)
    })
}

/// Checks a name as the CNI specification has it for networks; plugins' types must be such names too.
fn plain_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

fn wrong(file: &Path, place: impl Into<String>, reason: impl Into<String>) -> NetError {
    NetError::Config { file: file.to_owned(), place: place.into(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn parsed(text: &str) -> Result<NetworkList, NetError> {
        parse(Path::new("/etc/cni/net.d/10-x.conflist"), text.as_bytes())
    }

    #[test]
    fn the_first_valid_file_in_lexical_order_is_used() {
        let dir = dir_with(&[
            ("20-b.conflist", r#"{"cniVersion":"1.0.0","name":"b","plugins":[{"type":"bridge"}]}"#),
            ("10-a.conflist", r#"{"cniVersion":"1.0.0","name":"a","plugins":[]}"#),
            ("05-notes.txt", "not a configuration"),
            ("30-c.conf", r#"{"cniVersion":"1.0.0","name":"c","type":"ptp"}"#),
        ]);
        let loaded = load(dir.path()).unwrap();
        assert_eq!(loaded.list.name, "b");
        assert_eq!(loaded.skipped.len(), 1);
        assert!(loaded.skipped[0].to_string().contains("10-a.conflist"), "{:?}", loaded.skipped);
    }

    #[test]
    fn a_single_plugin_becomes_a_list_of_one() {
        let dir = dir_with(&[("10-x.conf", r#"{"cniVersion":"0.3.1","name":"x","type":"ptp","mtu":1400}"#)]);
        let list = load(dir.path()).unwrap().list;
        assert_eq!(list.plugins.len(), 1);
        assert_eq!(list.plugins[0]["mtu"], 1400);
        assert_eq!(list.version, "0.3.1");
    }

    #[test]
    fn an_empty_or_absent_directory_says_so() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(load(dir.path()), Err(NetError::NoConfig { .. })));
        assert!(matches!(load(&dir.path().join("absent")), Err(NetError::NoConfig { .. })));
    }

    #[test]
    fn broken_json_names_file_and_line() {
        let dir = dir_with(&[("10-x.conflist", "{\n  \"name\": \"x\",\n  oops\n}")]);
        let error = load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("10-x.conflist") && error.contains("line 3"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named_by_its_place() {
        for (text, place) in [
            (r#"{"cniVersion":"1.0.0","plugins":[{"type":"a"}]}"#, ": name:"),
            (r#"{"cniVersion":"1.0.0","name":"../x","plugins":[{"type":"a"}]}"#, ": name:"),
            (r#"{"name":"x","plugins":[{"type":"a"}]}"#, ": cniVersion: none"),
            (r#"{"cniVersion":"0.2.0","name":"x","plugins":[{"type":"a"}]}"#, ": cniVersion: 0.2.0"),
            (r#"{"cniVersion":"1.0.0","name":"x"}"#, ": plugins:"),
            (r#"{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"a"},7]}"#, ": plugins[1]:"),
            (r#"{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"../sh"}]}"#, ": plugins[0].type:"),
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains(place), "{text}: {error}");
        }
    }

    #[test]
    fn the_newest_common_version_is_spoken() {
        let text = r#"{"cniVersion":"0.4.0","cniVersions":["0.4.0","1.1.0","2.0.0"],"name":"x","plugins":[{"type":"a"}]}"#;
        assert_eq!(parsed(text).unwrap().version, "1.1.0");
    }
}
