//! Volumes declared by images, in containers' plans.

use std::path::Path;

use runtime_spec::{ContainerPlan, ContainerSpec, ImageConfig, Mount, PodSpec, SpecError};

use crate::plan::PATHS;

fn plan(volumes: &[&str], mounted: &[&str]) -> Result<ContainerPlan, SpecError> {
    let pod = PodSpec { name: "p".into(), namespace: "n".into(), uid: "u".into(), ..PodSpec::default() };
    let mount =
        |path: &&str| Mount { host_path: "/srv".into(), container_path: (*path).into(), ..Mount::default() };
    let mounts = mounted.iter().map(mount).collect();
    let container = ContainerSpec { name: "c".into(), image: "i".into(), mounts, ..ContainerSpec::default() };
    let volumes = volumes.iter().map(|&path| path.to_owned()).collect();
    let image = ImageConfig { cmd: vec!["/run".into()], volumes, ..ImageConfig::default() };
    ContainerPlan::resolve(&pod, &container, &image, "id1", &PATHS)
}

/// The sources of the plan's volumes with their paths, and the places of their mounts.
fn volumes(volumes: &[&str], mounted: &[&str]) -> Vec<(String, String)> {
    let plan = plan(volumes, mounted).unwrap();
    let mounts = plan.oci.mounts().as_ref().unwrap();
    for volume in &plan.declared_volumes {
        let mount = mounts.iter().find(|mount| mount.source().as_deref() == Some(Path::new(&volume.source)));
        let mount = mount.unwrap();
        assert_eq!(mount.destination(), Path::new(&volume.path));
        assert_eq!(mount.options().as_ref().unwrap(), &["rbind", "rprivate", "rw"]);
    }
    plan.declared_volumes.into_iter().map(|volume| (volume.source, volume.path)).collect()
}

fn pair(source: &str, path: &str) -> (String, String) {
    (source.to_owned(), path.to_owned())
}

#[test]
fn each_declared_path_is_a_volume_once() {
    assert_eq!(volumes(&[], &[]), []);
    let found = volumes(&["/data", "/data/", "logs", "/a/./../b", "/../../c"], &[]);
    let expected = [
        pair("/g/declared/0", "/b"),
        pair("/g/declared/1", "/c"),
        pair("/g/declared/2", "/data"),
        pair("/g/declared/3", "/logs"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_mount_at_the_same_path_wins() {
    let found = volumes(&["/data", "/data/below", "/dev/shm", "/etc/hosts", "/proc"], &["/data/"]);
    assert_eq!(found, [pair("/g/declared/0", "/data/below")]);
}

#[test]
fn the_kernels_file_systems_keep_their_places() {
    let declared = ["/sys/fs/cgroup", "/proc/self", "/x/../sys/fs", "/data"];
    for mounted in [&[][..], &["/sys/fs/cgroup"]] {
        assert_eq!(volumes(&declared, mounted), [pair("/g/declared/0", "/data")]);
    }
}

#[test]
fn paths_that_cannot_be_volumes_are_refused() {
    let long = format!("/{}", "x".repeat(5000));
    for (path, why) in
        [("/", "root"), ("", "root"), ("/a/../..", "root"), ("/a\0b", "no path"), (long.as_str(), "no path")]
    {
        let error = plan(&[path], &[]).unwrap_err().to_string();
        assert!(error.starts_with("image.volumes: ") && error.contains(why), "{error}");
    }
    let many: Vec<String> = (0..65).map(|number| format!("/{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(plan(&many, &[]).unwrap_err().to_string().contains("at most 64"));
    plan(&many[..64], &[]).unwrap();
}
