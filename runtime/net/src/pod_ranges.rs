//! Saves the node's pod address ranges from the kubelet and writes a CNI configuration for them from a
//! template. Owns both files. It is for nodes without a network add-on writing the configuration.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use runtime_fail_points::{Point, pass};

use crate::{
    NetError, config,
    template::{self, Value},
};

/// Name of the generated configuration.
const FILE_NAME: &str = "10-podvisor.conflist";

/// Bytes of the largest accepted template.
const TEMPLATE_BYTES_MAX: u64 = 1 << 20;

/// The files for the ranges.
#[derive(Clone, Debug)]
pub struct PodRanges {
    conf_dir: PathBuf,
    template: Option<PathBuf>,
    saved: PathBuf,
}

impl PodRanges {
    /// Generates configurations in `conf_dir` if there is a template, and saves the ranges in the file
    /// `saved`.
    #[must_use]
    pub fn new(conf_dir: PathBuf, template: Option<PathBuf>, saved: PathBuf) -> Self {
        Self { conf_dir, template, saved }
    }

    /// Stores the ranges, primary first: each an address, a slash and a length. If the directory already has
    /// a configuration from elsewhere, none is written.
    ///
    /// # Errors
    /// The template cannot be read or parsed, or does not give a CNI configuration; or a file cannot be
    /// written. The configuration in use has not changed then.
    pub fn set(&self, ranges: &[String]) -> Result<(), NetError> {
        if let Some(template) = &self.template {
            let target = self.conf_dir.join(FILE_NAME);
            match config::load(&self.conf_dir) {
                Ok(loaded) if loaded.list.file != target => {
                    tracing::info!(file = %loaded.list.file.display(), "a CNI configuration is there; none is made");
                }
                _ => replace(&target, &configuration(template, &target, ranges)?)?,
            }
        }
        replace(&self.saved, &format!("{}\n", ranges.join(",")))
    }

    /// Returns the last stored ranges, if any.
    #[must_use]
    pub fn get(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.saved).unwrap_or_default();
        text.trim().split(',').filter(|range| !range.is_empty()).map(str::to_owned).collect()
    }
}

/// Fills the template with these ranges.
fn configuration(template: &Path, target: &Path, ranges: &[String]) -> Result<String, NetError> {
    let failed = |source| NetError::File { action: "read", path: template.to_owned(), source };
    let length = fs::metadata(template).map_err(failed)?.len();
    if length > TEMPLATE_BYTES_MAX {
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB")));
    }
    let text = fs::read_to_string(template).map_err(failed)?;
    let default_route = |range: &String| if range.contains(':') { "::/0" } else { "0.0.0.0/0" }.to_owned();
    let fields = HashMap::from([
        ("PodCIDR", Value::Text(ranges.first().cloned().unwrap_or_default())),
        ("PodCIDRRanges", Value::List(ranges.to_vec())),
        ("Routes", Value::List(ranges.iter().map(default_route).collect())),
    ]);
    let text = template::fill(&text, &fields).map_err(|wrong| NetError::Config {
        file: template.to_owned(),
        place: format!("line {}", wrong.line),
        reason: wrong.reason,
    })?;
    // An invalid configuration must not become the node's.
    config::parse(target, text.as_bytes())?;
    Ok(text)
}

/// Writes a file atomically, unless it already has this text.
fn replace(path: &Path, text: &str) -> Result<(), NetError> {
    let failed = |source| NetError::File { action: "write", path: path.to_owned(), source };
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    let dir = path.parent().unwrap_or(Path::new("/"));
    pass(Point::CniConfigWrite).and_then(|()| fs::create_dir_all(dir)).map_err(failed)?;
    // A name with this ending does not count as a configuration.
    let beside = path.with_extension("new");
    let write = || {
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        pass(Point::CniConfigWrite)?;
        fs::rename(&beside, path)
    };
    write().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = r#"{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "ipam": {
        "type": "host-local",
        "ranges": [{{range $i, $range := .PodCIDRRanges}}{{if $i}}, {{end}}[{"subnet": "{{$range}}"}]{{end}}],
        "routes": [{{range $i, $route := .Routes}}{{if $i}}, {{end}}{"dst": "{{$route}}"}{{end}}]}}]}"#;

    struct Node {
        dir: tempfile::TempDir,
        ranges: PodRanges,
    }

    fn node(template: &str) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("template"), template).unwrap();
        let ranges = PodRanges::new(at("net.d"), Some(at("template")), at("state/pod-ranges"));
        Node { dir, ranges }
    }

    fn ranges_of(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    #[test]
    fn the_ranges_become_a_configuration_that_counts_at_once() {
        let Node { dir, ranges } = node(TEMPLATE);
        ranges.set(&ranges_of("10.1.0.0/24,fd00::/64")).unwrap();
        let list = config::load(&dir.path().join("net.d")).unwrap().list;
        assert_eq!(list.plugins[0]["ipam"]["ranges"][1][0]["subnet"], "fd00::/64");
        assert_eq!(list.plugins[0]["ipam"]["routes"][0]["dst"], "0.0.0.0/0");
        assert_eq!(list.plugins[0]["ipam"]["routes"][1]["dst"], "::/0");
        assert_eq!(ranges.get(), ["10.1.0.0/24", "fd00::/64"]);
        let names: Vec<_> = fs::read_dir(dir.path().join("net.d")).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn the_same_ranges_again_change_no_file_and_others_do() {
        let Node { dir, ranges } = node(TEMPLATE);
        let inode = || {
            std::os::unix::fs::MetadataExt::ino(&dir.path().join("net.d").join(FILE_NAME).metadata().unwrap())
        };
        ranges.set(&ranges_of("10.1.0.0/24")).unwrap();
        let first = inode();
        ranges.set(&ranges_of("10.1.0.0/24")).unwrap();
        assert_eq!(inode(), first);
        ranges.set(&ranges_of("10.2.0.0/24")).unwrap();
        let text = fs::read_to_string(dir.path().join("net.d").join(FILE_NAME)).unwrap();
        assert!(text.contains("10.2.0.0/24") && !text.contains("10.1.0.0/24"));
    }

    #[test]
    fn somebody_elses_configuration_is_left_alone() {
        let Node { dir, ranges } = node(TEMPLATE);
        fs::create_dir(dir.path().join("net.d")).unwrap();
        let other = dir.path().join("net.d/05-other.conflist");
        fs::write(&other, r#"{"cniVersion":"1.0.0","name":"o","plugins":[{"type":"ptp"}]}"#).unwrap();
        ranges.set(&ranges_of("10.1.0.0/24")).unwrap();
        assert!(!dir.path().join("net.d").join(FILE_NAME).exists());
        assert_eq!(ranges.get(), ["10.1.0.0/24"]);
    }

    #[test]
    fn a_template_that_makes_no_configuration_is_an_error_and_no_file_is_written() {
        for (template, place) in
            [("{{.Nothing}}", "line 1"), ("{\"name\": \"x\"}", "plugins"), ("x", "line 1")]
        {
            let Node { dir, ranges } = node(template);
            let error = ranges.set(&ranges_of("10.1.0.0/24")).unwrap_err().to_string();
            assert!(error.contains(place), "{error}");
            assert!(!dir.path().join("net.d").exists());
        }
    }

    #[test]
    fn without_a_template_the_ranges_are_saved_all_the_same() {
        let Node { dir, ranges } = node(TEMPLATE);
        let ranges = PodRanges { template: None, ..ranges };
        assert!(ranges.get().is_empty());
        ranges.set(&ranges_of("10.1.0.0/24")).unwrap();
        assert_eq!(ranges.get(), ["10.1.0.0/24"]);
        assert!(!dir.path().join("net.d").exists());
    }
}
