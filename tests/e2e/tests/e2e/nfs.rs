//! Volumes on a file server with user permissions, without rights for root.

use proto_cri::v1;
use tests_e2e::nfs::Nfs;
use tests_e2e::{Host, disk, spec};

/// A sleeping container with this user, with the export at `/data`.
fn container(name: &str, image: &str, nfs: &Nfs, user: i64) -> v1::ContainerConfig {
    let mut config = spec::container(name, image, &["sleep", "3600"]);
    let host_path = nfs.mounted().display().to_string();
    config.mounts = vec![v1::Mount { host_path, container_path: "/data".into(), ..Default::default() }];
    spec::with_user(config, user, user)
}

#[tokio::test]
async fn an_export_that_squashes_root_takes_what_its_user_may_do_on_the_node() {
    if !disk::in_software_node() {
        return;
    }
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let nfs = Nfs::export(host.dir()).unwrap();
    let home = nfs.exported().join("home");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(1000), Some(1000)).unwrap();
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();

    let pod = client.run_pod(&spec::pod("nfs", host.dir())).await.unwrap();
    let user = client.run(&pod, container("user", &image, &nfs, 1000)).await.unwrap();
    let work = "cd /data/home && echo one >a && mkdir d && mv a d/b && ln d/b c && ln -s c s && echo two >>s && cat s && \
                chmod 640 c && touch -d @1000 c && stat -c %a:%u:%g:%Y c && readlink s && ls d && rm d/b && rmdir d && ls";
    assert_eq!(client.sh(&user, work).await.unwrap(), "one\ntwo\n640:1000:1000:1000\nc\nb\nc\ns\n");
    // The user before leaves nothing of itself to the next.
    let root = client.run(&pod, container("root", &image, &nfs, 0)).await.unwrap();
    let refused = client.sh(&root, "ls /data/home 2>&1; echo x >/data/x; echo $?").await.unwrap();
    assert!(refused.contains("Permission denied") && refused.ends_with("\n1\n"), "{refused}");
    let stranger = client.run(&pod, container("stranger", &image, &nfs, 1001)).await.unwrap();
    let refused = client.sh(&stranger, "cat /data/home/c 2>&1; true").await.unwrap();
    assert!(refused.contains("Permission denied"), "{refused}");
    assert_eq!(client.sh(&user, "cat /data/home/c").await.unwrap(), "one\ntwo\n");

    // A volume of a group: Kubernetes gives it to all containers of the pod (`fsGroup`).
    let shared = nfs.exported().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::os::unix::fs::chown(&shared, Some(0), Some(3000)).unwrap();
    std::fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o2770)).unwrap();
    let work = "cd /data/shared && echo one >a && mv a b && cat b && stat -c %u:%g b";
    let or_refused = format!("({work}) 2>/dev/null || echo refused");
    assert_eq!(client.sh(&user, &or_refused).await.unwrap(), "refused\n");
    let mut of_group = container("of-group", &image, &nfs, 1000);
    let context = of_group.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    context.supplemental_groups = vec![2000, 3000];
    let of_group = client.run(&pod, of_group).await.unwrap();
    assert_eq!(client.sh(&of_group, work).await.unwrap(), "one\n1000:3000\n");
    // The guest's kernel checks the group: this user is not in it.
    assert_eq!(client.sh(&user, &or_refused).await.unwrap(), "refused\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
