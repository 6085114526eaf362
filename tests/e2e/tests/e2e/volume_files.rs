//! Files of volumes with several users: access control lists, with the same decisions in the guest's kernel
//! as in the node's, and a file growing elsewhere.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use proto_cri::v1;
use tests_e2e::{Host, spec};
use tokio::process::Command;

/// Sets a list of the node's file: `access` or `default`, by (tag, permissions, id) each as acl(5) has them.
async fn set_list(path: &Path, kind: &str, entries: &str) {
    let script = format!(
        "import os, struct; os.setxattr({path:?}, 'system.posix_acl_{kind}', struct.pack('<I', 2) + \
         b''.join(struct.pack('<HHI', *entry) for entry in [{entries}]))"
    );
    assert!(Command::new("python3").args(["-c", &script]).status().await.unwrap().success(), "{script}");
}

/// A sleeping container with this user and group, with the directory at `/data` and at `/again`.
fn container(name: &str, image: &str, volume: &Path, user: i64, group: i64) -> v1::ContainerConfig {
    let mut config = spec::container(name, image, &["sleep", "3600"]);
    let host_path = volume.display().to_string();
    let mount = |path: &str| v1::Mount {
        host_path: host_path.clone(),
        container_path: path.into(),
        ..Default::default()
    };
    config.mounts = vec![mount("/data"), mount("/again")];
    spec::with_user(config, user, group)
}

#[tokio::test]
async fn a_list_shuts_out_and_lets_in_and_is_given_to_new_files_as_on_the_node() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let volume = host.dir().join("volume");
    let (file, dir) = (volume.join("file"), volume.join("dir"));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(&file, "secret\n").unwrap();
    chown(&file, Some(0), Some(3000)).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o660)).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
    // rw for root, r for user 1000, nothing for the group and others, a mask of rw.
    set_list(
        &file,
        "access",
        "(1, 6, 2**32-1), (2, 4, 1000), (4, 0, 2**32-1), (16, 6, 2**32-1), (32, 0, 2**32-1)",
    )
    .await;
    set_list(
        &dir,
        "default",
        "(1, 7, 2**32-1), (2, 7, 1000), (4, 7, 2**32-1), (16, 7, 2**32-1), (32, 0, 2**32-1)",
    )
    .await;

    let pod = client.run_pod(&spec::pod("lists", host.dir())).await.unwrap();
    let named = client.run(&pod, container("named", &image, &volume, 1000, 1000)).await.unwrap();
    let of_group = client.run(&pod, container("of-group", &image, &volume, 2000, 3000)).await.unwrap();
    let tries = "cat /data/file 2>&1; (echo x >>/data/file) 2>/dev/null || echo refused";
    assert_eq!(client.sh(&named, tries).await.unwrap(), "secret\nrefused\n");
    let shut_out = client.sh(&of_group, tries).await.unwrap();
    assert!(shut_out.contains("Permission denied") && shut_out.ends_with("\nrefused\n"), "{shut_out}");
    // The list of the directory takes the umask's place.
    let made =
        client.sh(&of_group, "umask 077; echo x >/data/dir/new; stat -c %a /data/dir/new").await.unwrap();
    assert_eq!(made, "660\n");
    assert_eq!(client.sh(&named, "cat /data/dir/new").await.unwrap(), "x\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_file_that_grew_elsewhere_is_sent_to_its_new_end() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let volume = host.dir().join("volume");
    std::fs::create_dir(&volume).unwrap();
    std::fs::write(volume.join("file"), "one ").unwrap();
    let pod = client.run_pod(&spec::pod("grows", host.dir())).await.unwrap();
    let main = client.run(&pod, container("main", &image, &volume, 0, 0)).await.unwrap();
    // busybox copies by sendfile(2).
    let line = "exec 3</data/file; cat <&3; printf two >>/again/file; cat <&3";
    assert_eq!(client.sh(&main, line).await.unwrap(), "one two");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn every_change_of_a_volumes_files_is_a_change_on_the_node() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let volume = host.dir().join("changed");
    std::fs::create_dir(&volume).unwrap();
    let pod = client.run_pod(&spec::pod("changes", host.dir())).await.unwrap();
    let container = client.run(&pod, container("main", &image, &volume, 0, 0)).await.unwrap();
    let script = "cd /data && umask 022 && echo 123456 >file && truncate -s 3 file && cat file && echo && mkfifo pipe && \
                  mkdir dir && ln -s file link && ln file hard && mv hard dir/moved && chmod 640 file && \
                  chown 5:6 file && touch -d @1000000000 file && sync file dir && sync -d file dir && \
                  readlink link && ls dir && df /data >/dev/null && rm dir/moved && rmdir dir && echo done";
    assert_eq!(client.sh(&container, script).await.unwrap(), "123\nfile\nmoved\ndone\n");
    let mut stat = Command::new("stat");
    let stat = stat.args(["-c", "%F %a %u:%g %s %Y %h", "file"]).current_dir(&volume).output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&stat.stdout), "regular file 640 5:6 3 1000000000 1\n");
    let mut names: Vec<_> =
        std::fs::read_dir(&volume).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["file", "link", "pipe"]);
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// The VMM must not have a descriptor of the kernel's own files, and cannot write without taking set-id bits
/// away. So the share reads and writes these files, behind its own filter.
#[tokio::test]
async fn files_that_the_vmm_must_not_hold_are_read_and_written_by_the_share() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let volume = host.dir().join("volume");
    std::fs::create_dir(&volume).unwrap();
    let mut config = container("main", &image, &volume, 0, 0);
    config.mounts.push(v1::Mount {
        host_path: "/proc".into(),
        container_path: "/host/proc".into(),
        readonly: true,
        ..Default::default()
    });
    let pod = client.run_pod(&spec::pod("kernels", host.dir())).await.unwrap();
    let main = client.run(&pod, config).await.unwrap();
    let version = std::fs::read_to_string("/proc/version").unwrap();
    assert_eq!(client.sh(&main, "cat /host/proc/version").await.unwrap(), version);
    let bits = "cd /data; echo one >f; chmod 4755 f; echo two >>f; cat f; stat -c %a f";
    assert_eq!(client.sh(&main, bits).await.unwrap(), "one\ntwo\n4755\n");
    assert_eq!(client.sh(&main, "echo alive").await.unwrap(), "alive\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
