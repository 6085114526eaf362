//! Finds and reads the network configuration: the directory's first valid file in lexical order. Owns the
//! checks of its form. Runs nothing and caches nothing: every call reads the current directory.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use crate::NetError;

/// Bytes of the largest accepted configuration. Real ones are a few KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The supported CNI versions, oldest first.
pub(crate) const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Most plugins of one network, including those of its directory.
const PLUGINS_MAX: usize = 64;

/// One network: a chain of plugins under one name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NetworkList {
    /// The network's file, for errors.
    pub(crate) file: PathBuf,
    /// The network's name.
    pub(crate) name: String,
    /// The CNI version of the plugins' input: the newest known to both sides.
    pub(crate) version: &'static str,
    /// The plugins' configurations, never empty; each is an object with a plain `type`.
    pub(crate) plugins: Vec<Map<String, Value>>,
    /// Whether GC is disabled for the plugins.
    pub(crate) disables_gc: bool,
}

impl NetworkList {
    /// Returns true if the list's version is `first` or later. `first` is one of [`VERSIONS`].
    pub(crate) fn since(&self, first: &str) -> bool {
        let place = |wanted: &str| VERSIONS.iter().position(|known| *known == wanted);
        place(self.version) >= place(first)
    }
}

/// The result of reading a directory.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The network to use.
    pub(crate) list: NetworkList,
    /// The unusable files before it.
    pub(crate) skipped: Vec<NetError>,
}

/// Reads the network of `dir`.
///
/// # Errors
/// `NoConfig` if there is no candidate; else the error of the first one.
pub(crate) fn load(dir: &Path) -> Result<Loaded, NetError> {
    let mut skipped = Vec::new();
    for file in files(dir, &["conflist", "conf", "json"])? {
        match read(&file).and_then(|text| whole(dir, &file, &text)) {
            Ok(list) => return Ok(Loaded { list, skipped }),
            Err(error) => skipped.push(error),
        }
    }
    Err(skipped.into_iter().next().unwrap_or_else(|| NetError::NoConfig { dir: dir.to_owned() }))
}

/// Lists the files with these extensions, in lexical order. An absent directory holds none.
fn files(dir: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, NetError> {
    let failed = |source| NetError::File { action: "read", path: dir.to_owned(), source };
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let known = path.extension().is_some_and(|found| extensions.iter().any(|known| found == *known));
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

/// Reads one configuration: a list or a single plugin. A single plugin becomes a list of one.
pub(crate) fn parse(file: &Path, text: &[u8]) -> Result<NetworkList, NetError> {
    let (list, _) = listed(file, text)?;
    if list.plugins.is_empty() {
        return Err(wrong(file, "plugins", "must be an array with at least one plugin"));
    }
    Ok(list)
}

/// Reads one configuration, including the plugins in the directory beside it with the list's name (CNI 1.1.0,
/// `loadOnlyInlinedPlugins`).
fn whole(dir: &Path, file: &Path, text: &[u8]) -> Result<NetworkList, NetError> {
    let (mut list, has_directory) = listed(file, text)?;
    let beside = dir.join(&list.name);
    if has_directory {
        for file in files(&beside, &["conf"])? {
            let top = object(&file, &read(&file)?)?;
            list.plugins.push(plugin(&file, "type", &top)?);
        }
    }
    match list.plugins.len() {
        0 => Err(wrong(file, "plugins", format!("there are none, and none in {}", beside.display()))),
        PLUGINS_MAX.. => Err(wrong(file, "plugins", format!("more than {PLUGINS_MAX}"))),
        _ => Ok(list),
    }
}

fn object(file: &Path, text: &[u8]) -> Result<Map<String, Value>, NetError> {
    serde_json::from_slice(text).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        wrong(file, place, format!("not a JSON object: {error}"))
    })
}

/// Parses the network of a file. Returns true if more plugins may be in a directory; the list may then be
/// empty.
fn listed(file: &Path, text: &[u8]) -> Result<(NetworkList, bool), NetError> {
    let top = object(file, text)?;
    let name = top.get("name").and_then(Value::as_str).unwrap_or_default();
    if !plain_name(name) {
        let reason = "must be a letter or digit, then letters, digits, '_', '.' and '-'";
        return Err(wrong(file, "name", reason));
    }
    let version = version(file, &top)?;
    let is_list = top.contains_key("plugins") || file.extension().is_some_and(|e| e == "conflist");
    let disables_gc = is_true(file, &top, "disableGC")?;
    let has_directory = is_list && !is_true(file, &top, "loadOnlyInlinedPlugins")?;
    let plugins = match is_list {
        true if has_directory && !top.contains_key("plugins") => Vec::new(),
        true => plugins_of(file, &top)?,
        false => vec![plugin(file, "type", &top)?],
    };
    let (file, name) = (file.to_owned(), name.to_owned());
    Ok((NetworkList { file, name, version, plugins, disables_gc }, has_directory))
}

/// Reads a boolean, also written as a string.
fn is_true(file: &Path, top: &Map<String, Value>, key: &str) -> Result<bool, NetError> {
    match top.get(key) {
        None => Ok(false),
        Some(Value::Bool(is)) => Ok(*is),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(other) => Err(wrong(file, key, format!("{other} given; it is true or false"))),
    }
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

/// Chooses the newest version known to both the file (`cniVersion`, and `cniVersions` since 1.1.0) and us. A
/// file without a version has the first one, because it predates versions.
fn version(file: &Path, top: &Map<String, Value>) -> Result<&'static str, NetError> {
    let text = |key: &str, value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(wrong(file, key, format!("{other} given; a version is a text"))),
    };
    let mut offered = Vec::new();
    match top.get("cniVersions") {
        None => {}
        Some(Value::Array(all)) => {
            offered = all.iter().map(|value| text("cniVersions", value)).collect::<Result<_, _>>()?;
        }
        Some(other) => return Err(wrong(file, "cniVersions", format!("{other} given; it is a list"))),
    }
    if let Some(one) = top.get("cniVersion") {
        offered.push(text("cniVersion", one)?);
    }
    offered.retain(|version| !version.is_empty());
    if offered.is_empty() {
        return Ok(VERSIONS[0]);
    }
    let newest = VERSIONS.iter().rev().find(|known| offered.iter().any(|version| version == *known)).copied();
    newest.ok_or_else(|| {
        let reason = format!("{} given; supported are {}", offered.join(", "), VERSIONS.join(", "));
        wrong(file, "cniVersion", reason)
    })
}

/// Checks a name by the CNI specification's rule for networks. Plugin types must match it too.
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
            (r#"{"cniVersion":"1.2.0","name":"x","plugins":[{"type":"a"}]}"#, ": cniVersion: 1.2.0"),
            (
                r#"{"cniVersion":1,"name":"x","plugins":[{"type":"a"}]}"#,
                ": cniVersion: 1 given; a version is a text",
            ),
            (
                r#"{"cniVersions":"1.1.0","name":"x","plugins":[{"type":"a"}]}"#,
                ": cniVersions: \"1.1.0\" given",
            ),
            (r#"{"cniVersions":[1.1],"name":"x","plugins":[{"type":"a"}]}"#, ": cniVersions: 1.1 given"),
            (r#"{"disableGC":"no","name":"x","plugins":[{"type":"a"}]}"#, ": disableGC: \"no\" given"),
            (r#"{"loadOnlyInlinedPlugins":true,"name":"x"}"#, ": plugins:"),
            (r#"{"loadOnlyInlinedPlugins":0,"name":"x"}"#, ": loadOnlyInlinedPlugins: 0 given"),
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

    #[test]
    fn a_file_without_a_version_is_of_the_first_one() {
        for version in ["", r#""cniVersion":"","#, r#""cniVersion":"0.1.0","cniVersions":[],"#] {
            let list = parsed(&format!(r#"{{{version}"name":"x","plugins":[{{"type":"a"}}]}}"#)).unwrap();
            assert_eq!(list.version, "0.1.0");
            assert!(!list.since("0.4.0") && list.since("0.1.0"));
        }
    }

    #[test]
    fn a_list_has_more_plugins_in_a_directory_of_its_name_unless_it_says_no() {
        let list = |more: &str| format!(r#"{{"cniVersion":"1.1.0","name":"net"{more}}}"#);
        let types = |more: &str, files: &[(&str, &str)]| {
            let dir = dir_with(&[("10-x.conflist", &list(more))]);
            std::fs::create_dir(dir.path().join("net")).unwrap();
            for (name, text) in files {
                std::fs::write(dir.path().join("net").join(name), text).unwrap();
            }
            load(dir.path()).map(|loaded| {
                let types =
                    loaded.list.plugins.into_iter().map(|plugin| plugin["type"].as_str().unwrap().to_owned());
                types.collect::<Vec<_>>().join(" ")
            })
        };
        let more = [("20-c.conf", r#"{"type":"c"}"#), ("10-b.conf", r#"{"type":"b"}"#), ("30-d.json", "no")];
        assert_eq!(types(r#","plugins":[{"type":"a"}]"#, &more).unwrap(), "a b c");
        assert_eq!(types("", &more).unwrap(), "b c");
        assert_eq!(
            types(r#","loadOnlyInlinedPlugins":"True","plugins":[{"type":"a"}]"#, &more).unwrap(),
            "a"
        );
        let none = types("", &[]).unwrap_err().to_string();
        assert!(none.contains(": plugins: there are none, and none in "), "{none}");
        let broken = types("", &[("b.conf", r#"{"type":"/b"}"#)]).unwrap_err().to_string();
        assert!(broken.contains("net/b.conf: type:"), "{broken}");
    }

    #[test]
    fn plugins_may_not_be_asked_to_clean_up() {
        let disables = |more: &str| {
            parsed(&format!(r#"{{"name":"x","plugins":[{{"type":"a"}}]{more}}}"#)).unwrap().disables_gc
        };
        assert!(!disables("") && !disables(r#","disableGC":false"#));
        assert!(disables(r#","disableGC":true"#) && disables(r#","disableGC":"TRUE","disableCheck":1"#));
    }
}
