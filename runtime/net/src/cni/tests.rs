//! The configuration while it changes, and pods beside a cleaning.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};

use super::*;

const LIST: &str = r#"{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge"}]}"#;

/// Empty directories for configurations, plugins and records.
fn directories(dir: &Path) -> CniConfig {
    let [conf_dir, bin_dir, cache_dir] = ["net.d", "bin", "cache"].map(|name| dir.join(name));
    for made in [&conf_dir, &bin_dir, &cache_dir] {
        fs::create_dir(made).unwrap();
    }
    CniConfig { conf_dir, bin_dirs: vec![bin_dir], cache_dir, ..CniConfig::default() }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_network_changes_holds_up_no_other_for_a_cleaning() {
    let dir = tempfile::tempdir().unwrap();
    let config = directories(dir.path());
    fs::write(config.bin_dirs[0].join("bridge"), "").unwrap();
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(config.bin_dirs[0].join("bridge"), executable).unwrap();
    let cni = Cni::new(config);
    let changes = cni.exclusive.read().await;
    // Before 1.1.0 there is nothing to do, so nothing is waited for.
    fs::write(dir.path().join("net.d/10-net.conflist"), LIST).unwrap();
    let at_once = tokio::time::Instant::now();
    cni.collect_garbage().await;
    assert_eq!(at_once.elapsed(), Duration::ZERO);
    let cleaned = LIST.replace("1.0.0", "1.1.0");
    fs::write(dir.path().join("net.d/10-net.conflist"), cleaned).unwrap();
    cni.collect_garbage().await;
    let next = cni.exclusive.try_read();
    assert!(next.is_ok(), "it has given up, and the next pod does not wait behind it");
    drop((next, changes));
}

#[tokio::test]
async fn a_cleaning_left_by_an_earlier_daemon_ends_before_the_first_pod() {
    let dir = tempfile::tempdir().unwrap();
    let config = directories(dir.path());
    let mut plugin = std::process::Command::new("sleep");
    plugin.arg("1000").env("CNI_COMMAND", "GC").env("CNI_PATH", &config.bin_dirs[0]).process_group(0);
    let mut plugin = plugin.spawn().unwrap();
    let spec = PodNetworkSpec { pod_id: "p1".into(), ..PodNetworkSpec::default() };
    let refused = Cni::new(config).setup(&spec).await.unwrap_err();
    assert!(matches!(refused, NetError::NoConfig { .. }), "{refused}");
    assert_eq!(plugin.wait().unwrap().signal(), Some(9));
}

#[tokio::test]
async fn a_daemon_that_is_not_alone_has_plugins_clean_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let config = directories(dir.path());
    let called = dir.path().join("called");
    let script = format!("#!/bin/sh\necho $CNI_COMMAND >>{}\n", called.display());
    let plugin = config.bin_dirs[0].join("bridge");
    fs::write(&plugin, script).unwrap();
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.path().join("net.d/10-net.conflist"), LIST.replace("1.0.0", "1.1.0")).unwrap();
    Cni::new(CniConfig { collects_garbage: false, ..config.clone() }).collect_garbage().await;
    assert!(!called.exists());
    Cni::new(config).collect_garbage().await;
    assert_eq!(fs::read_to_string(called).unwrap(), "GC\n");
}

#[test]
fn new_directories_count_for_every_clone_and_not_for_a_setup_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (conf_dir, bin_dir) = (dir.path().join("net.d"), dir.path().join("bin"));
    for made in [&conf_dir, &bin_dir] {
        fs::create_dir(made).unwrap();
    }
    fs::write(conf_dir.join("10-pods.conflist"), LIST).unwrap();
    let plugin = bin_dir.join("bridge");
    fs::write(&plugin, "").unwrap();
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
    let nowhere = dir.path().join("nowhere");
    let dirs = |conf_dir: &Path, bin_dirs: &[&Path]| CniConfig {
        conf_dir: conf_dir.to_owned(),
        bin_dirs: bin_dirs.iter().map(|dir| dir.to_path_buf()).collect(),
        ..CniConfig::default()
    };
    let cni = Cni::new(dirs(&nowhere, &[&nowhere]));
    let (clone, running) = (cni.clone(), cni.as_of_now());
    assert!(cni.ready().is_err());
    cni.configure(dirs(&conf_dir, &[&nowhere]));
    assert!(clone.ready().unwrap_err().chain().contains("bridge"));
    cni.configure(dirs(&conf_dir, &[&nowhere, &bin_dir]));
    clone.ready().unwrap();
    assert!(running.ready().is_err());
}
