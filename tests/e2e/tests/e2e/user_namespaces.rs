//! Pods with root only as root of a user namespace.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, umount2};
use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};
use tests_registry::Layer;
use tonic::Code;

use crate::session::{Session, exec_url};

/// Debian's package busybox-static, as the images of these tests have it.
const BUSYBOX: &str = "/bin/busybox";
/// Root without a password, so any user can become root through a set-user-ID program.
const PASSWD: &[u8] = b"root::0:0::/root:/bin/sh\napp:x:33:33::/:/bin/sh\n";

/// A file system of the node with id-mapped mounts.
struct Volume(PathBuf);

impl Volume {
    fn make(path: PathBuf) -> Volume {
        fs::create_dir(&path).unwrap();
        nix::mount::mount(Some("none"), &path, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        Volume(path)
    }

    fn owner(&self, name: &str) -> (u32, u32) {
        let found = fs::metadata(self.0.join(name)).unwrap();
        (found.uid(), found.gid())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

fn mapping(container_id: u32, host_id: u32, length: u32) -> v1::IdMapping {
    v1::IdMapping { container_id, host_id, length }
}

fn options(mode: v1::NamespaceMode, ids: &[v1::IdMapping]) -> v1::NamespaceOption {
    let user = v1::UserNamespace { mode: mode.into(), uids: ids.to_vec(), gids: ids.to_vec() };
    v1::NamespaceOption { userns_options: Some(user), ..Default::default() }
}

fn pod(name: &str, host: &Host, options: v1::NamespaceOption) -> v1::PodSandboxConfig {
    let mut config = spec::pod(name, host.dir());
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default().namespace_options = Some(options);
    linux.sysctls.insert("kernel.shm_rmid_forced".into(), "1".into());
    config
}

fn secured(
    mut config: v1::ContainerConfig,
    context: v1::LinuxContainerSecurityContext,
) -> v1::ContainerConfig {
    config.linux.get_or_insert_default().security_context = Some(context);
    config
}

fn mounted(from: &Path, at: &str, ids: &[v1::IdMapping]) -> v1::Mount {
    v1::Mount {
        host_path: from.display().to_string(),
        container_path: at.into(),
        uid_mappings: ids.to_vec(),
        gid_mappings: ids.to_vec(),
        ..Default::default()
    }
}

async fn image(host: &Host, client: &mut Client) -> String {
    let (mut layers, config) = tests_registry::busybox_image().unwrap();
    let su = fs::read(BUSYBOX).unwrap();
    layers.push(
        Layer::builder().file("usr/local/bin/su", 0o4755, su).file("etc/passwd", 0o644, PASSWD).build(),
    );
    host.registry.push_image("e2e/users", "1", layers, config).await.unwrap();
    client.pull(&host.image("e2e/users:1")).await.unwrap()
}

#[tokio::test]
async fn a_pod_with_a_user_namespace_is_root_of_its_own_and_of_nothing_else() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = image(&host, &mut client).await;
    let volume = Volume::make(host.dir().join("mapped-volume"));
    fs::write(volume.0.join("given"), "").unwrap();
    let ids = [mapping(0, 1000, 100_000)];
    let options = options(v1::NamespaceMode::Pod, &ids);
    let pod = client.run_pod(&pod("users", &host, options.clone())).await.unwrap();
    let reported = client.pod_status(&pod).await.unwrap().linux.unwrap().namespaces.unwrap().options.unwrap();
    assert_eq!(reported, options);

    let add_capabilities = vec!["SYS_ADMIN".into(), "NET_ADMIN".into()];
    let root = v1::LinuxContainerSecurityContext {
        namespace_options: Some(options.clone()),
        capabilities: Some(v1::Capability { add_capabilities, ..Default::default() }),
        ..Default::default()
    };
    let config = v1::ContainerConfig {
        working_dir: "/data/made/here".into(),
        mounts: vec![mounted(&volume.0, "/data", &ids)],
        ..spec::shell("root", &image, "cat /proc/self/uid_map > /first; exec sleep 4711")
    };
    let root = client.run(&pod, secured(config, root)).await.unwrap();
    root_is_the_namespaces(&mut client, &root).await;
    volume_is_written_as_the_nodes_users(&mut client, &root, &volume).await;
    not_of_the_guest(&mut client, &root).await;
    others_of_the_pod(&mut client, &pod, &image, &options).await;
    let proc = mounted(Path::new("/proc/sys"), "/data", &ids);
    let config = v1::ContainerConfig { mounts: vec![proc], ..spec::container("proc", &image, &["true"]) };
    let context =
        v1::LinuxContainerSecurityContext { namespace_options: Some(options), ..Default::default() };
    let refusal = client.create(&pod, secured(config, context)).await.unwrap_err();
    assert!(refusal.code() == Code::InvalidArgument, "{refusal}");
    assert!(refusal.message().contains("mounts.uid_mappings"), "{refusal}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

async fn root_is_the_namespaces(client: &mut Client, root: &str) {
    let map = "until [ -s /first ]; do sleep 0.1; done; \
               cat /first /proc/self/uid_map /proc/self/gid_map | tr -s ' \\n' ' '";
    assert_eq!(client.sh(root, map).await.unwrap().trim(), ["0 1000 100000"; 3].join(" "));
    let owners = "stat -c %u:%g / /bin/busybox /var/www /etc/hosts /dev/shm . /data/given | tr '\\n' ' '";
    assert_eq!(client.sh(root, owners).await.unwrap(), "0:0 0:0 33:33 0:0 0:0 0:0 0:0 ");
    let written =
        "echo x > /tmp/x && chown 33:33 /tmp/x && echo y >> /etc/group && stat -c %u /tmp/x /etc/group";
    assert_eq!(client.sh(root, written).await.unwrap(), "33\n0\n");
    let other = "su app -c 'id -u; id -g; touch /etc/passwd 2>/dev/null || echo refused'";
    assert_eq!(client.sh(root, other).await.unwrap(), "33\n33\nrefused\n");
    let terminal = ["sh", "-c", "echo x > /dev/stderr && stat -L -c %u /dev/stdin"];
    let url = exec_url(client, root, &terminal, true, true).await;
    let mut session = Session::open(&url, &["stdin", "stdout", "resize"]).await;
    assert_eq!(session.end().await["status"], "Success");
    assert_eq!(session.text("stdout"), "x\r\n0\r\n");
}

async fn volume_is_written_as_the_nodes_users(client: &mut Client, root: &str, volume: &Volume) {
    let write = "touch of-root; mkdir -m 777 /data/open; su app -c 'touch /data/open/of-app'; \
                 chown 5:6 /data/given; stat -c %u:%g of-root /data/open/of-app /data/given";
    assert_eq!(client.sh(root, write).await.unwrap(), "0:0\n33:33\n5:6\n");
    assert_eq!(volume.owner("made/here/of-root"), (0, 0));
    assert_eq!(volume.owner("open/of-app"), (33, 33));
    assert_eq!(volume.owner("given"), (5, 6));
}

/// Root of the namespace has the pod's network, host name, mounts and IPC, and not the guest's clock or
/// devices.
async fn not_of_the_guest(client: &mut Client, root: &str) {
    let own = "ip link set lo mtu 9000 && hostname its-own && hostname && mount -t tmpfs none /mnt && \
               echo mounted; cat /proc/sys/kernel/shm_rmid_forced";
    assert_eq!(client.sh(root, own).await.unwrap(), "its-own\nmounted\n1\n");
    let denied = client.sh(root, "date -s 2001-01-01 2>&1; mknod /tmp/d b 254 0 2>&1; true").await.unwrap();
    assert_eq!(denied.matches("not permitted").count(), 2, "{denied}");
}

/// A user of the image in the same namespaces, on a terminal, under a filter; and one with its own processes.
async fn others_of_the_pod(client: &mut Client, pod: &str, image: &str, options: &v1::NamespaceOption) {
    let filter = v1::SecurityProfile {
        profile_type: v1::security_profile::ProfileType::RuntimeDefault.into(),
        ..Default::default()
    };
    let context = v1::LinuxContainerSecurityContext {
        namespace_options: Some(options.clone()),
        run_as_user: Some(v1::Int64Value { value: 33 }),
        seccomp: Some(filter),
        readonly_rootfs: true,
        ..Default::default()
    };
    let config = v1::ContainerConfig { tty: true, ..spec::container("app", image, &["sleep", "4711"]) };
    let app = client.run(pod, secured(config, context.clone())).await.unwrap();
    let seen = client.sh(&app, "id -u; cat /proc/1/comm; hostname").await.unwrap();
    assert_eq!(seen, "33\npause\nits-own\n");
    let raised = "/usr/local/bin/su root -c 'id -u; tr -s \" \" < /proc/self/uid_map'";
    assert_eq!(client.sh(&app, raised).await.unwrap(), "0\n 0 1000 100000\n");
    let expected = client.pod_ip(pod).await.unwrap();
    let address = client.sh(&app, "ip -o -4 addr show eth0 | awk '{print $4}'").await.unwrap();
    assert!(address.starts_with(&expected), "{address}");

    let alone = v1::NamespaceOption { pid: v1::NamespaceMode::Container.into(), ..options.clone() };
    let alone = v1::LinuxContainerSecurityContext { namespace_options: Some(alone), ..Default::default() };
    let alone = secured(spec::container("alone", image, &["sleep", "4711"]), alone);
    let alone = client.run(pod, alone).await.unwrap();
    assert_eq!(client.sh(&alone, "cat /proc/1/comm").await.unwrap(), "sleep\n");

    let beyond = v1::LinuxContainerSecurityContext {
        run_as_user: Some(v1::Int64Value { value: 100_000 }),
        ..context.clone()
    };
    let beyond = secured(spec::container("beyond", image, &["true"]), beyond);
    let refusal = client.create(pod, beyond).await.unwrap_err();
    assert!(refusal.code() == Code::InvalidArgument && refusal.message().contains("100000"), "{refusal}");
}

#[tokio::test]
async fn a_pod_without_one_is_the_guests_root_and_impossible_ones_are_refused_by_name() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let status = client.runtime.status(v1::StatusRequest::default()).await.unwrap().into_inner();
    assert!(
        status.runtime_handlers.iter().all(|handler| handler.features.is_some_and(|has| has.user_namespaces))
    );
    let (one, two) = (mapping(0, 1000, 10), mapping(10, 2000, 10));
    for (mode, ids) in [
        (v1::NamespaceMode::Pod, vec![one, two]),
        (v1::NamespaceMode::Pod, vec![mapping(1, 1000, 10)]),
        (v1::NamespaceMode::Pod, vec![]),
        (v1::NamespaceMode::Container, vec![one]),
        (v1::NamespaceMode::Target, vec![one]),
    ] {
        let refusal = client.run_pod(&pod("bad", &host, options(mode, &ids))).await.unwrap_err();
        assert!(refusal.code() == Code::InvalidArgument, "{refusal}");
        assert!(refusal.message().contains("userns_options"), "{refusal}");
    }
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&pod("plain", &host, options(v1::NamespaceMode::Node, &[]))).await.unwrap();
    let plain = client.run(&pod, spec::container("plain", &image, &["sleep", "4711"])).await.unwrap();
    let map = client.sh(&plain, "tr -s ' ' < /proc/self/uid_map").await.unwrap();
    assert_eq!(map, " 0 0 4294967295\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
