//! Build tools making images in pods, as users without rights.

use std::fs;

use proto_cri::v1;
use proto_cri::v1::security_profile::ProfileType;
use tests_e2e::client::Client;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::{Host, spec};
use tests_registry::{Layer, installed_layer};

/// A build tool from Debian's packages, a program for mapping its users, and a runtime for its commands.
const TOOL: [&str; 8] = [
    "/usr/bin/buildah",
    "/usr/bin/newuidmap",
    "/usr/bin/newgidmap",
    "/usr/sbin/runc",
    "/etc/containers/policy.json",
    "/etc/containers/registries.conf",
    "/usr/share/containers/containers.conf",
    "/usr/share/containers/seccomp.json",
];

/// The programs for mapping users, each with the number of its one needed capability. In Debian they are
/// set-user-ID and need CAP_SYS_ADMIN, too; images of build tools use file capabilities instead.
const MAPS: [(&str, u32); 2] = [("usr/bin/newuidmap", 7), ("usr/bin/newgidmap", 6)];

/// A file's capability, permitted and effective (`struct vfs_cap_data` of include/uapi/linux/capability.h,
/// revision 2).
fn capability(number: u32) -> Vec<u8> {
    [0x0200_0001, 1 << number, 0, 0, 0].iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
}

const BUSYBOX: &str = "/bin/busybox";
const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nbuild:x:1000:1000::/work:/bin/sh\n";
const GROUP: &str = "root:x:0:\nbuild:x:1000:\n";
/// Users available to the tool for mapping.
const RANGE: &str = "build:2000:50000\n";

const STEPS: &str = r#"FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "sh", "-c", "echo made by $(/bin/busybox id -u) >/made && /bin/busybox chown 7:8 /made"]
"#;

/// Builds the image and runs a command in it; shows the tool's output if it fails.
fn build(isolation: &str) -> String {
    format!(
        "export HOME=/work XDG_RUNTIME_DIR=/work/run STORAGE_DRIVER=overlay BUILDAH_RUNTIME=/usr/sbin/runc && \
         mkdir -p /work/run && \
         (buildah bud --isolation {isolation} -t made /context && buildah from --name from localhost/made && \
          buildah run --isolation {isolation} from /bin/busybox sh -c \
          '/bin/busybox cat /made; /bin/busybox stat -c %u:%g /made' >/work/seen) >/work/log 2>&1 \
         || cat /work/log; cat /work/seen; id -u; buildah info | grep -o 'GraphDriverName.*'"
    )
}
const BUILD_SECONDS: i64 = 600;

/// Paths masked or made read-only by a kubelet, unless the pod has `procMount: Unmasked`.
const MASKED: [&str; 8] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/scsi",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

async fn image(host: &Host, client: &mut Client) -> String {
    let (mut layers, config) = tests_registry::busybox_image().unwrap();
    layers.push(installed_layer(&TOOL).unwrap());
    let mut own = Layer::builder();
    for (path, number) in MAPS {
        let program = fs::read(format!("/{path}")).unwrap();
        own = own.xattr("security.capability", &capability(number)).file(path, 0o755, program);
    }
    let own = own
        .file("etc/passwd", 0o644, PASSWD)
        .file("etc/group", 0o644, GROUP)
        .file("etc/subuid", 0o644, RANGE)
        .file("etc/subgid", 0o644, RANGE)
        .file("context/Dockerfile", 0o644, STEPS)
        .file("context/busybox", 0o755, fs::read(BUSYBOX).unwrap());
    layers.push(own.build());
    host.registry.push_image("e2e/build", "1", layers, config).await.unwrap();
    client.pull(&host.image("e2e/build:1")).await.unwrap()
}

/// A user without rights, but with no seccomp filter against an own user namespace.
fn user() -> v1::LinuxContainerSecurityContext {
    let unconfined =
        v1::SecurityProfile { profile_type: ProfileType::Unconfined.into(), ..Default::default() };
    let id = || Some(v1::Int64Value { value: 1000 });
    v1::LinuxContainerSecurityContext {
        run_as_user: id(),
        run_as_group: id(),
        seccomp: Some(unconfined),
        ..Default::default()
    }
}

fn builder(image: &str, context: v1::LinuxContainerSecurityContext, mount: v1::Mount) -> v1::ContainerConfig {
    let mut config = spec::container("build", image, &["sleep", "100000"]);
    config.mounts = vec![mount];
    config.linux = Some(v1::LinuxContainerConfig { resources: None, security_context: Some(context) });
    spec::with_memory(config, 512 << 20)
}

async fn seen(client: &mut Client, container: &str, isolation: &str) -> String {
    let answer = client.exec(container, &["sh", "-c", &build(isolation)], BUILD_SECONDS).await.unwrap();
    String::from_utf8_lossy(&answer.stdout).into_owned()
}

const BUILT: &str = "made by 0\n7:8\n1000\nGraphDriverName\": \"overlay\",\n";

#[tokio::test]
async fn a_build_tool_without_rights_makes_an_image_on_a_volume_of_its_pod() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = image(&host, &mut client).await;
    let config = spec::pod("build", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let work = volumes.disk("work", 0o777, 0).unwrap();
    let pod = client.run_pod(&config).await.unwrap();
    let context = v1::LinuxContainerSecurityContext {
        masked_paths: MASKED.map(str::to_owned).to_vec(),
        readonly_paths: READ_ONLY.map(str::to_owned).to_vec(),
        ..user()
    };
    let container = client.run(&pod, builder(&image, context, mounted(&work, "/work"))).await.unwrap();
    assert_eq!(seen(&mut client, &container, "chroot").await, BUILT);
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
