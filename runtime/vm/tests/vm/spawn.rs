//! VMMs failing to start.

use std::path::Path;

use runtime_vm::{Spawn, Vm, VmError, VolumeCache};

#[tokio::test]
async fn a_vmm_that_ends_at_once_is_reported_with_its_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let shared = dir.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let binary = Path::new("/bin/false");
    let spawn = Spawn {
        binary,
        dir: dir.path(),
        shared: &shared,
        volume_cache: VolumeCache::default(),
        cgroups: &[],
        id: "test",
        log,
        console: None,
    };
    let error = Vm::spawn(spawn).await.unwrap_err();
    assert!(matches!(error, VmError::Ended { .. }), "{error}");
    assert!(error.to_string().contains("exit status 1"), "{error}");
}
