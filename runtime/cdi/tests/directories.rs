//! The directories as filled by an operator and drivers, in order and with every possible error.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use runtime_cdi::{DeviceName, Edits, Found, Origin, Registry, ResolveError};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

/// A directory of installers and one of drivers.
struct Node {
    dir: TempDir,
}

impl Node {
    fn new() -> Node {
        let dir = tempfile::tempdir().unwrap();
        for below in ["etc", "run"] {
            fs::create_dir(dir.path().join(below)).unwrap();
        }
        Node { dir }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    fn registry(&self) -> Registry {
        Registry::new(vec![self.path("etc"), self.path("run")])
    }

    fn resolve(&self, names: &[&str]) -> Result<Vec<(Origin, Edits)>, ResolveError> {
        self.registry().resolve(&names.iter().map(|name| name.parse().unwrap()).collect::<Vec<DeviceName>>())
    }

    /// The variables set by the named devices, in order.
    fn env(&self, names: &[&str]) -> Result<Vec<String>, String> {
        let resolved = self.resolve(names).map_err(|error| error.to_string())?;
        let pairs = resolved.into_iter().flat_map(|(_, edits)| edits.env);
        Ok(pairs.map(|(name, value)| format!("{name}={value}")).collect())
    }

    /// Faults as lines, with paths below the directory.
    fn faults(&self) -> Vec<String> {
        let below = format!("{}/", self.dir.path().display());
        self.registry().read().faults().iter().map(|fault| fault.to_string().replace(&below, "")).collect()
    }
}

/// A file with one variable for each device, and one for all.
fn file(kind: &str, all: &str, devices: &[(&str, &str)]) -> String {
    let devices = devices
        .iter()
        .map(|(name, value)| format!(r#"{{"name":"{name}","containerEdits":{{"env":["{name}={value}"]}}}}"#));
    let devices = devices.collect::<Vec<_>>().join(",");
    format!(
        r#"{{"cdiVersion":"0.6.0","kind":"{kind}","containerEdits":{{"env":["{all}"]}},"devices":[{devices}]}}"#
    )
}

#[test]
fn edits_of_the_file_come_once_and_before_those_of_its_devices_in_the_order_asked() {
    let node = Node::new();
    node.write("etc/a.json", &file("v.com/a", "ALL=a", &[("x", "1"), ("y", "2")]));
    node.write("run/b.yaml", &file("v.com/b", "ALL=b", &[("x", "3")]));
    let names = ["v.com/a=y", "v.com/b=x", "v.com/a=x", "v.com/a=y"];
    assert_eq!(node.env(&names).unwrap(), ["ALL=a", "y=2", "ALL=b", "x=3", "x=1"]);
    let origin = &node.resolve(&["v.com/b=x"]).unwrap()[0].0;
    let text = format!("CDI device v.com/b=x of {}", node.path("run/b.yaml").display());
    assert_eq!(origin.to_string(), text);
}

#[test]
fn drivers_override_installers_for_the_devices_that_both_define() {
    let node = Node::new();
    node.write("etc/a.json", &file("v.com/a", "ALL=etc", &[("x", "etc"), ("y", "etc")]));
    node.write("run/a.json", &file("v.com/a", "ALL=run", &[("x", "run")]));
    assert_eq!(node.env(&["v.com/a=x"]).unwrap(), ["ALL=run", "x=run"]);
    assert_eq!(node.env(&["v.com/a=y"]).unwrap(), ["ALL=etc", "y=etc"]);
    assert!(node.faults().is_empty());
    assert_eq!(node.registry().read().devices().len(), 2);
}

#[test]
fn two_files_of_one_directory_that_define_a_device_leave_it_to_nobody() {
    let node = Node::new();
    node.write("etc/a.json", &file("v.com/a", "ALL=a", &[("x", "a"), ("mine", "a")]));
    node.write("etc/b.json", &file("v.com/a", "ALL=b", &[("x", "b")]));
    let error = node.env(&["v.com/a=x"]).unwrap_err();
    assert!(error.contains("v.com/a=x") && error.contains("a.json, ") && error.contains("b.json"), "{error}");
    assert_eq!(node.env(&["v.com/a=mine"]).unwrap(), ["ALL=a", "mine=a"]);
    let faults = node.faults();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].starts_with("etc/a.json: device v.com/a=x is in etc/b.json too"), "{faults:?}");
    assert_eq!(node.registry().read().devices(), ["v.com/a=mine".parse().unwrap()]);
    // A file of higher rank decides.
    node.write("run/c.json", &file("v.com/a", "ALL=c", &[("x", "c")]));
    assert_eq!(node.env(&["v.com/a=x"]).unwrap(), ["ALL=c", "x=c"]);
    assert!(node.faults().is_empty());
}

#[test]
fn a_change_of_the_files_counts_for_the_next_request() {
    let node = Node::new();
    let registry = node.registry();
    let name = ["v.com/a=x".parse().unwrap()];
    let env = || registry.resolve(&name).map(|resolved| resolved[1].1.env[0].1.clone());
    assert!(matches!(env(), Err(ResolveError::Undefined { .. })));
    for value in ["1", "2"] {
        node.write("run/a.json", &file("v.com/a", "ALL=a", &[("x", value)]));
        assert_eq!(env().unwrap(), value);
    }
    fs::remove_file(node.path("run/a.json")).unwrap();
    assert!(env().is_err());
    fs::remove_dir(node.path("run")).unwrap();
    assert!(env().is_err());
}

#[test]
fn a_device_that_nothing_defines_is_named_with_the_directories() {
    let node = Node::new();
    fs::remove_dir(node.path("run")).unwrap();
    node.write("etc/a.json", &file("v.com/a", "ALL=a", &[("x", "1")]));
    for name in ["v.com/a=y", "v.com/b=x"] {
        let error = node.env(&[name]).unwrap_err();
        assert!(error.starts_with(&format!("CDI device {name}: no file in ")), "{error}");
        assert!(error.contains("/etc and ") && error.ends_with("/run defines it"), "{error}");
    }
}

#[test]
fn a_file_with_errors_disturbs_nobody_but_who_asks_for_what_it_may_define() {
    let node = Node::new();
    node.write("etc/good.json", &file("v.com/a", "ALL=a", &[("x", "1")]));
    node.write("etc/kind.json", r#"{"cdiVersion":"0.6.0","kind":"v.com/b","devices":[],"gpu":1}"#);
    assert_eq!(node.env(&["v.com/a=x"]).unwrap(), ["ALL=a", "x=1"]);
    // The broken file's kind is readable, so it only affects that kind.
    let other = node.env(&["v.com/a=y"]).unwrap_err();
    assert!(!other.contains("kind.json"), "{other}");
    let concerned = node.env(&["v.com/b=x"]).unwrap_err();
    assert!(concerned.contains("etc/kind.json: unknown field `gpu`"), "{concerned}");
    // An unreadable file may affect any kind.
    node.write("etc/torn.yaml", "kind: [");
    let other = node.env(&["v.com/a=y"]).unwrap_err();
    assert!(other.contains("etc/torn.yaml: ") && !other.contains("kind.json"), "{other}");
    assert_eq!(node.env(&["v.com/a=x"]).unwrap(), ["ALL=a", "x=1"]);
    assert_eq!(node.faults().len(), 2);
}

#[test]
fn many_faults_are_counted_in_a_message_and_listed_in_full_elsewhere() {
    let node = Node::new();
    for number in 0..40 {
        node.write(&format!("etc/{number:02}.json"), "{");
    }
    let error = node.env(&["v.com/a=x"]).unwrap_err();
    assert!(error.contains("03.json") && !error.contains("04.json"), "{error}");
    assert!(error.ends_with("; 36 more, listed by `podvisor check`"), "{error}");
    assert_eq!(node.faults().len(), 40);
}

#[test]
fn what_is_no_regular_file_is_never_opened() {
    let node = Node::new();
    // Opening a FIFO waits for ever, and /dev/zero never ends.
    mknodat(CWD, node.path("etc/pipe.json"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    symlink("/dev/zero", node.path("etc/zero.yaml")).unwrap();
    symlink(node.path("run"), node.path("etc/linked.json")).unwrap();
    symlink(node.path("etc/loop.json"), node.path("etc/loop.json")).unwrap();
    symlink(node.path("gone"), node.path("etc/stale.json")).unwrap();
    fs::create_dir(node.path("etc/directory.json")).unwrap();
    let _listens = std::os::unix::net::UnixListener::bind(node.path("etc/socket.json")).unwrap();
    node.write("etc/x.json", &file("v.com/a", "ALL=a", &[("x", "1")]));
    assert_eq!(node.env(&["v.com/a=x"]).unwrap(), ["ALL=a", "x=1"]);
    let faults = node.faults();
    let starts = [
        "etc/linked.json: is no regular file",
        "etc/loop.json: Too many levels of symbolic links",
        "etc/pipe.json: is no regular file",
        "etc/socket.json: is no regular file",
        "etc/stale.json: No such file or directory",
        "etc/zero.yaml: is no regular file",
    ];
    assert_eq!(faults.len(), starts.len(), "{faults:?}");
    for (fault, start) in faults.iter().zip(starts) {
        assert!(fault.starts_with(start), "{fault}");
    }
}

#[test]
fn a_link_to_a_file_elsewhere_is_followed() {
    let node = Node::new();
    node.write("x", &file("v.com/a", "ALL=a", &[("x", "1")]));
    symlink(node.path("x"), node.path("etc/x.json")).unwrap();
    assert_eq!(node.env(&["v.com/a=x"]).unwrap(), ["ALL=a", "x=1"]);
}

#[test]
fn what_may_not_be_read_is_a_fault() {
    let node = Node::new();
    node.write("etc/x.json", &file("v.com/a", "ALL=a", &[("x", "1")]));
    fs::set_permissions(node.path("etc/x.json"), Permissions::from_mode(0o0)).unwrap();
    // Root may read it all the same.
    let readable = File::open(node.path("etc/x.json")).is_ok();
    assert_eq!(node.env(&["v.com/a=x"]).is_ok(), readable);
    assert_eq!(node.faults().is_empty(), readable);
    // A file in place of a directory cannot be read.
    let registry = Registry::new(vec![node.path("etc/x.json"), node.path("run")]);
    let error = registry.resolve(&["v.com/a=x".parse().unwrap()]).unwrap_err().to_string();
    assert!(error.contains("etc/x.json: Not a directory"), "{error}");
}

#[test]
fn huge_files_are_not_read_and_others_are() {
    let node = Node::new();
    let huge = File::create(node.path("etc/a.json")).unwrap();
    huge.set_len(1 << 40).unwrap();
    node.write("etc/x.json", &file("v.com/a", "ALL=a", &[("x", "1")]));
    assert_eq!(node.env(&["v.com/a=x"]).unwrap(), ["ALL=a", "x=1"]);
    assert_eq!(node.faults(), ["etc/a.json: has 1099511627776 bytes, and 2097152 are read at most"]);
}

#[test]
fn files_that_are_too_much_together_are_read_as_far_as_the_bound_goes() {
    let node = Node::new();
    let padding = " ".repeat((2 << 20) - 4096);
    for number in 0..12 {
        let content = file(&format!("v.com/k{number:02}"), "ALL=a", &[("x", "1")]);
        node.write(&format!("etc/{number:02}.json"), &format!("{content}{padding}"));
    }
    assert_eq!(node.env(&["v.com/k00=x"]).unwrap(), ["ALL=a", "x=1"]);
    let faults = node.faults();
    assert_eq!(faults.len(), 4, "{faults:?}");
    assert_eq!(faults[0], "etc/08.json: is not read: the files before it have 16777216 bytes together");
    assert!(node.env(&["v.com/k11=x"]).unwrap_err().contains("etc/08.json: is not read"));
}

#[test]
fn a_directory_with_too_many_files_is_read_in_part_and_says_so() {
    let node = Node::new();
    for number in 0..1100 {
        node.write(&format!("etc/{number}.json"), &file(&format!("v.com/k{number}"), "ALL=a", &[("x", "1")]));
    }
    let snapshot = node.registry().read();
    assert_eq!(snapshot.file_count(), 1024);
    assert_eq!(
        node.faults(),
        ["etc: holds more than 1024 files, and the rest is not read"].map(str::to_owned)
    );
    assert!(node.env(&["v.com/none=x"]).unwrap_err().contains("holds more than 1024 files"));
}

#[test]
fn files_of_other_names_are_passed_over() {
    let node = Node::new();
    for name in ["etc/x.yml", "etc/spec.1.tmp", "etc/README", "etc/.json"] {
        node.write(name, "not a CDI file");
    }
    assert_eq!(node.registry().read().file_count(), 0);
    assert!(node.faults().is_empty());
}

#[test]
fn device_nodes_are_looked_at_on_the_node() {
    let node = Node::new();
    let edits = |path: &Path| format!(r#"{{"deviceNodes":[{{"path":"{}"}}]}}"#, path.display());
    let content = format!(
        r#"{{"cdiVersion":"1.1.0","kind":"v.com/a","devices":[{{"name":"null","containerEdits":{}}},
            {{"name":"none","containerEdits":{}}},{{"name":"dir","containerEdits":{}}}]}}"#,
        edits("/dev/null".as_ref()),
        edits("/dev/there-is-none".as_ref()),
        edits(node.dir.path()),
    );
    node.write("etc/x.json", &content);
    let found = |name: &str| node.resolve(&[name]).unwrap()[1].1.device_nodes[0].found.clone();
    assert_eq!(found("v.com/a=null"), Found::Character(1, 3));
    assert_eq!(found("v.com/a=none"), Found::Missing);
    assert_eq!(found("v.com/a=dir"), Found::Other);
}
