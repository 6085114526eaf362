//! Security contexts, as they hold inside the guest.

use proto_cri::v1;
use proto_cri::v1::security_profile::ProfileType;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};
use tests_registry::Layer;
use tonic::Code;

const PASSWD: &[u8] = b"root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n";
const GROUP: &[u8] = b"root:x:0:\napp:x:1000:\nimage:x:50000:app\n";

/// Forbids every way to chmod, and setting the host name.
const PROFILE: &str = r#"{ "defaultAction": "SCMP_ACT_ALLOW",
    "archMap": [{ "architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"] }],
    "syscalls": [
        { "names": ["chmod", "fchmodat", "fchmodat2"], "action": "SCMP_ACT_ERRNO" },
        { "name": "sethostname", "action": "SCMP_ACT_ERRNO", "includes": { "caps": ["CAP_SYS_ADMIN"] } }
    ] }"#;

/// A pod with a shared process namespace, and an image with groups, in the registry.
async fn pod(host: &Host, client: &mut Client, name: &str) -> (String, String) {
    let (mut layers, config) = tests_registry::busybox_image().unwrap();
    layers.push(Layer::builder().file("etc/passwd", 0o644, PASSWD).file("etc/group", 0o644, GROUP).build());
    host.registry.push_image("e2e/groups", name, layers, config).await.unwrap();
    let image = client.pull(&host.image(&format!("e2e/groups:{name}"))).await.unwrap();
    let mut pod = spec::pod(name, host.dir());
    let linux = pod.linux.get_or_insert_default();
    let privileged = v1::LinuxSandboxSecurityContext { privileged: true, ..Default::default() };
    linux.security_context = Some(privileged);
    for (key, value) in
        [("kernel.shm_rmid_forced", "1"), ("fs/mqueue/msg_max", "100"), ("net.ipv4.ip_default_ttl", "77")]
    {
        linux.sysctls.insert(key.into(), value.into());
    }
    (client.run_pod(&pod).await.unwrap(), image)
}

/// A sleeping container with this security context.
fn secured(name: &str, image: &str, context: v1::LinuxContainerSecurityContext) -> v1::ContainerConfig {
    let mut config = spec::container(name, image, &["sleep", "4711"]);
    config.linux.get_or_insert_default().security_context = Some(context);
    config
}

fn profile(profile_type: ProfileType, localhost_ref: &str) -> Option<v1::SecurityProfile> {
    let localhost_ref = localhost_ref.to_owned();
    Some(v1::SecurityProfile { profile_type: profile_type.into(), localhost_ref })
}

fn pids(mode: v1::NamespaceMode, target: &str) -> Option<v1::NamespaceOption> {
    Some(v1::NamespaceOption { pid: mode.into(), target_id: target.into(), ..Default::default() })
}

fn app() -> v1::LinuxContainerSecurityContext {
    v1::LinuxContainerSecurityContext {
        run_as_user: Some(v1::Int64Value { value: 1000 }),
        supplemental_groups: vec![1234],
        ..Default::default()
    }
}

#[tokio::test]
async fn a_container_runs_with_the_user_and_privileges_of_its_context() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let features = client.runtime.status(v1::StatusRequest::default()).await.unwrap().into_inner().features;
    assert!(features.unwrap().supplemental_groups_policy);
    let (pod, image) = pod(&host, &mut client, "context").await;

    let config = v1::ContainerConfig { working_dir: "/made/here".into(), ..secured("merge", &image, app()) };
    let merge = client.run(&pod, config).await.unwrap();
    assert_eq!(
        client.sh(&merge, "id -G; pwd; stat -c %u:%a .").await.unwrap(),
        "1000 1234 50000\n/made/here\n0:755\n"
    );
    let status =
        "grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status; cut -d' ' -f4 /proc/self/mounts | head -1";
    let status_lines = client.sh(&merge, status).await.unwrap();
    assert!(
        status_lines.starts_with("NoNewPrivs:\t0\nSeccomp:\t0\nrw,") && !status_lines.contains("nosuid"),
        "{status_lines}"
    );
    let sysctls = "cd /proc/sys; cat kernel/shm_rmid_forced fs/mqueue/msg_max net/ipv4/ip_default_ttl";
    assert_eq!(client.sh(&merge, sysctls).await.unwrap(), "1\n100\n77\n");
    assert_eq!(client.sh(&merge, "cat /proc/1/comm").await.unwrap(), "pause\n");
    let user = client.status(&merge).await.unwrap().user.unwrap().linux.unwrap();
    assert_eq!((user.uid, user.gid, user.supplemental_groups), (1000, 1000, vec![1000, 50000, 1234]));

    let context = v1::LinuxContainerSecurityContext {
        supplemental_groups_policy: v1::SupplementalGroupsPolicy::Strict.into(),
        no_new_privs: true,
        readonly_rootfs: true,
        masked_paths: vec!["/bin/ls".into(), "/home".into(), "/not/there".into()],
        readonly_paths: vec!["/tmp".into(), "/not/there".into()],
        seccomp: profile(ProfileType::RuntimeDefault, ""),
        run_as_username: "app".into(),
        run_as_user: None,
        run_as_group: Some(v1::Int64Value { value: 7 }),
        capabilities: Some(v1::Capability { drop_capabilities: vec!["ALL".into()], ..Default::default() }),
        ..app()
    };
    let strict = client.run(&pod, secured("strict", &image, context)).await.unwrap();
    assert_eq!(client.sh(&strict, "id -u; id -G").await.unwrap(), "1000\n7 1234\n");
    let status = client.sh(&strict, "cat /proc/self/status").await.unwrap();
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapBnd:\t0000000000000000"] {
        assert!(status.contains(line), "{status}");
    }
    assert_eq!(
        client.sh(&strict, "/bin/ls 2>/dev/null; echo $?; /bin/ls /home 2>/dev/null").await.unwrap(),
        "126\n"
    );
    let touch = client.sh(&strict, "for f in /x /tmp/x; do touch $f 2>&1; done").await.unwrap();
    assert_eq!(touch.matches("Read-only file system").count(), 2, "{touch}");

    let file = host.dir().join("profile.json");
    std::fs::write(&file, PROFILE).unwrap();
    let capabilities =
        v1::Capability { add_capabilities: vec!["CAP_SYS_ADMIN".into()], ..Default::default() };
    let context = v1::LinuxContainerSecurityContext {
        seccomp: profile(ProfileType::Localhost, &file.display().to_string()),
        capabilities: Some(capabilities),
        ..Default::default()
    };
    let filtered = client.run(&pod, secured("filtered", &image, context.clone())).await.unwrap();
    let denied = client.sh(&filtered, "chmod 400 / 2>&1; hostname x 2>&1; true").await.unwrap();
    assert_eq!(denied.matches("Operation not permitted").count(), 2, "{denied}");

    let context = v1::LinuxContainerSecurityContext { privileged: true, ..context };
    let privileged = client.run(&pod, secured("privileged", &image, context)).await.unwrap();
    let line = "grep -E '^(CapEff|Seccomp):' /proc/self/status; hostname other && hostname; \
                test -b /dev/vda && head -c1 /dev/vda | wc -c; grep -cE '^[a-z0-9]+ /sys(/fs/cgroup)? [a-z0-9]+ rw' /proc/mounts";
    let expected = "CapEff:\t000001ffffffffff\nSeccomp:\t0\nother\n1\n2\n";
    assert_eq!(client.sh(&privileged, line).await.unwrap(), expected);
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn pid_namespaces_are_the_pods_the_containers_a_targets_or_the_guests() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let (pod, image) = pod(&host, &mut client, "pids").await;
    let mode = |mode, target: &str| v1::LinuxContainerSecurityContext {
        namespace_options: pids(mode, target),
        ..Default::default()
    };
    let first = "cat /proc/1/cmdline | tr '\\0' ' '";

    let own = client.run(&pod, secured("own", &image, mode(v1::NamespaceMode::Container, ""))).await.unwrap();
    assert_eq!(client.sh(&own, first).await.unwrap(), "sleep 4711 ");
    let debug =
        client.run(&pod, secured("debug", &image, mode(v1::NamespaceMode::Target, &own))).await.unwrap();
    assert_eq!(
        client.sh(&debug, &format!("{first}; ps | grep -c '[s]leep 4711'")).await.unwrap(),
        "sleep 4711 2\n"
    );

    let node = mode(v1::NamespaceMode::Node, "");
    let mut config = secured("node1", &image, node.clone());
    config.command = ["sh", "-c", "echo $$ > /dev/shm/pid; exec sleep 4712"].map(str::to_owned).into();
    let one = client.run(&pod, config).await.unwrap();
    let two = client.run(&pod, secured("node2", &image, node)).await.unwrap();
    // The same number means the same process to both; it is a shell until it has started its command.
    let line =
        "until tr '\\0' ' ' < /proc/$(cat /dev/shm/pid)/cmdline | grep -x 'sleep 4712 '; do sleep 0.1; done";
    assert_eq!(client.sh(&two, line).await.unwrap(), "sleep 4712 \n");
    assert_eq!(client.sh(&one, "cat /proc/1/comm").await.unwrap(), "podvisor-agent\n");

    client.stop(&own, 0).await.unwrap();
    let late = client.create(&pod, secured("late", &image, mode(v1::NamespaceMode::Target, &own))).await;
    let refusal = late.unwrap_err();
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert!(refusal.message().contains(&own), "{refusal}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn settings_without_a_meaning_in_a_guest_are_refused_by_name() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let mut odd = spec::pod("odd", host.dir());
    odd.linux.get_or_insert_default().sysctls.insert("kernel.no_such_thing".into(), "1".into());
    let refusal = client.run_pod(&odd).await.unwrap_err();
    assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal}");
    assert!(refusal.message().contains("kernel.no_such_thing"), "{refusal}");

    let (pod, image) = pod(&host, &mut client, "refusals").await;
    let none = v1::LinuxContainerSecurityContext::default;
    let group =
        v1::LinuxContainerSecurityContext { run_as_group: Some(v1::Int64Value { value: 7 }), ..none() };
    let name = v1::LinuxContainerSecurityContext { run_as_username: "stranger".into(), ..none() };
    let missing = v1::LinuxContainerSecurityContext {
        seccomp: profile(ProfileType::Localhost, "/no/profile"),
        ..none()
    };
    let apparmor =
        v1::LinuxContainerSecurityContext { apparmor: profile(ProfileType::Localhost, "mine"), ..none() };
    let label = v1::SeLinuxOption { r#type: "spc_t".into(), ..Default::default() };
    let label = v1::LinuxContainerSecurityContext { selinux_options: Some(label), ..none() };
    let network = v1::NamespaceOption { network: v1::NamespaceMode::Node.into(), ..Default::default() };
    let network = v1::LinuxContainerSecurityContext { namespace_options: Some(network), ..none() };
    for (context, word) in [
        (group, "run_as_group"),
        (name, "stranger"),
        (missing, "/no/profile"),
        (apparmor, "mine"),
        (label, "spc_t"),
        (network, "namespace_options.network"),
    ] {
        let refusal = client.create(&pod, secured("odd", &image, context)).await.unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal}");
        assert!(refusal.message().contains(word), "{refusal}");
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// The pod's pause process is PID 1 of a shared namespace, and every container with CAP_SYS_PTRACE may look
/// into it.
#[tokio::test]
async fn the_first_process_of_a_shared_namespace_has_no_files_and_no_rights() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let (pod, image) = pod(&host, &mut client, "pause").await;
    let context = v1::LinuxContainerSecurityContext {
        namespace_options: pids(v1::NamespaceMode::Pod, ""),
        capabilities: Some(v1::Capability { add_capabilities: vec!["ALL".into()], ..Default::default() }),
        ..Default::default()
    };
    let main = client.run(&pod, secured("main", &image, context)).await.unwrap();
    let line = "cat /proc/1/comm /proc/1/oom_score_adj; ls -A /proc/1/root | wc -l; wc -l </proc/1/mountinfo; \
                grep -E '^Cap|^NoNewPrivs' /proc/1/status | grep -vc '0000000000000000$'";
    let seen = client.sh(&main, line).await.unwrap();
    // Only NoNewPrivs has another value.
    assert_eq!(seen, "pause\n-998\n0\n1\n1\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
