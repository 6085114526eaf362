//! Specs resolved into plans.

use std::path::Path;

use oci_spec::runtime::{
    Capability, LinuxDeviceCgroup, LinuxNamespace, LinuxNamespaceType, LinuxSeccomp, LinuxSeccompAction,
    LinuxSeccompOperator, Spec,
};
use runtime_spec::{
    ContainerPlan, ContainerSecurity, ContainerSpec, Device, ExecPlan, ExecSpec, GuestPaths, ImageConfig,
    Mount, MountPropagation, NamespaceMode, Namespaces, PodSecurity, PodSpec, ProcessLimit, Profile,
    Resources, SeccompProfile, Signal, SpecError, Tmpfs,
};

pub(crate) const PATHS: GuestPaths = GuestPaths {
    resolv_conf: "/g/resolv.conf",
    hosts: "/g/hosts",
    hostname: "/g/hostname",
    shm: "/g/shm",
    pid_namespace: "/g/pid",
    cgroup_parent: "/pod",
    shared: "/g/share",
    image_volumes: "/g/image",
    guest_volumes: "/g/kept",
    host_sockets: "/g/sockets",
    declared_volumes: "/g/declared",
};

fn pod() -> PodSpec {
    // Some tests make privileged containers.
    let security = PodSecurity { privileged: true, ..PodSecurity::default() };
    PodSpec {
        name: "web".into(),
        namespace: "default".into(),
        uid: "u1".into(),
        security,
        ..PodSpec::default()
    }
}

fn container() -> ContainerSpec {
    ContainerSpec { name: "c".into(), image: "i".into(), ..ContainerSpec::default() }
}

fn image() -> ImageConfig {
    ImageConfig { entrypoint: words("/entry e1"), cmd: words("c1 c2"), ..ImageConfig::default() }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn plan(container: &ContainerSpec, image: &ImageConfig) -> ContainerPlan {
    ContainerPlan::resolve(&pod(), container, image, "id1", &PATHS).unwrap()
}

fn secured(security: ContainerSecurity) -> Spec {
    plan(&ContainerSpec { security, ..container() }, &image()).oci
}

fn args(spec: &Spec) -> String {
    spec.process().as_ref().unwrap().args().as_ref().unwrap().join(" ")
}

#[test]
fn variables_are_taken_away_from_the_images_and_not_from_those_that_are_asked_for() {
    let image = ImageConfig { env: words("A=1 B=2 C=3"), ..image() };
    let env = vec![("C".to_owned(), "9".to_owned())];
    let unset = ["A", "C", "HOSTNAME"].map(str::to_owned).to_vec();
    let oci = plan(&ContainerSpec { env, unset_env: unset, ..container() }, &image).oci;
    let env = oci.process().as_ref().unwrap().env().clone().unwrap();
    assert_eq!(env[1..], ["B=2", "C=9"]);
    assert!(env[0].starts_with("PATH="));
}

#[test]
fn limits_of_processes_are_those_asked_for_and_that_of_open_files() {
    let limits = |asked: &[(&str, u64, u64)]| -> Vec<(String, u64, u64)> {
        let limit = |&(name, soft, hard): &(&str, u64, u64)| ProcessLimit { name: name.into(), soft, hard };
        let process_limits = asked.iter().map(limit).collect();
        let oci = plan(&ContainerSpec { process_limits, ..container() }, &image()).oci;
        let all = oci.process().as_ref().unwrap().rlimits().clone().unwrap();
        all.iter().map(|limit| (limit.typ().to_string(), limit.soft(), limit.hard())).collect()
    };
    let open_files = ("RLIMIT_NOFILE".to_owned(), 1024, 1 << 20);
    assert_eq!(limits(&[("RLIMIT_CORE", 0, 5)]), [("RLIMIT_CORE".to_owned(), 0, 5), open_files.clone()]);
    assert_eq!(limits(&[]), vec![open_files]);
    assert_eq!(limits(&[("RLIMIT_NOFILE", 7, 8)]), [("RLIMIT_NOFILE".to_owned(), 7, 8)]);
}

#[test]
fn command_and_args_follow_kubernetes_rules() {
    for (command, arguments, expected) in [
        ("", "", "/entry e1 c1 c2"),
        ("", "a1 a2", "/entry e1 a1 a2"),
        ("/cmd x", "", "/cmd x"),
        ("/cmd", "a1", "/cmd a1"),
    ] {
        let spec = ContainerSpec { command: words(command), args: words(arguments), ..container() };
        assert_eq!(args(&plan(&spec, &image()).oci), expected);
    }
}

#[test]
fn an_entrypoint_of_one_empty_word_is_none() {
    let image = ImageConfig { entrypoint: vec![String::new()], ..image() };
    assert_eq!(args(&plan(&container(), &image).oci), "c1 c2");
    let spec = ContainerSpec { args: words("a1"), ..container() };
    assert_eq!(args(&plan(&spec, &image).oci), "a1");
}

#[test]
fn nothing_to_run_is_refused() {
    let error =
        ContainerPlan::resolve(&pod(), &container(), &ImageConfig::default(), "id1", &PATHS).unwrap_err();
    assert!(matches!(error, SpecError::Invalid { field: "command", .. }), "{error}");
}

#[test]
fn variables_are_merged_and_the_callers_win() {
    let image = ImageConfig { env: words("A=1 B=2 bad PATH=/img"), ..image() };
    let env = vec![("B".to_owned(), "3=x".to_owned()), ("C".to_owned(), String::new())];
    let spec = plan(&ContainerSpec { env, tty: true, ..container() }, &image).oci;
    let env = spec.process().as_ref().unwrap().env().clone().unwrap();
    assert_eq!(env, words("PATH=/img HOSTNAME=web A=1 B=3=x C= TERM=xterm"));
    let env = plan(&container(), &ImageConfig { env: Vec::new(), ..image }).oci;
    let env = env.process().as_ref().unwrap().env().clone().unwrap();
    assert!(env[0].starts_with("PATH=/usr/local/sbin:"), "{env:?}");
}

#[test]
fn the_users_and_directories_come_from_the_caller_then_the_image() {
    let image = ImageConfig { user: "www:5".into(), working_dir: "/srv".into(), ..image() };
    let user = |security| plan(&ContainerSpec { security, ..container() }, &image).user;
    let none = ContainerSecurity::default;
    assert_eq!(user(none()), "www:5");
    assert_eq!(user(ContainerSecurity { run_as_user: Some(7), ..none() }), "7");
    assert_eq!(user(ContainerSecurity { run_as_user: Some(7), run_as_group: Some(8), ..none() }), "7:8");
    assert_eq!(user(ContainerSecurity { run_as_username: "bob".into(), ..none() }), "bob");
    let cwd = |spec: ContainerSpec| plan(&spec, &image).oci.process().as_ref().unwrap().cwd().clone();
    assert_eq!(cwd(container()).to_str(), Some("/srv"));
    assert_eq!(cwd(ContainerSpec { working_dir: "/w".into(), ..container() }).to_str(), Some("/w"));
    assert_eq!(plan(&container(), &self::image()).oci.process().as_ref().unwrap().cwd().to_str(), Some("/"));
}

#[test]
fn supplemental_groups_are_passed_on() {
    let spec =
        secured(ContainerSecurity { supplemental_groups: vec![10, 20], ..ContainerSecurity::default() });
    assert_eq!(spec.process().as_ref().unwrap().user().additional_gids(), &Some(vec![10, 20]));
}

#[test]
fn the_stop_signal_is_the_callers_then_the_images() {
    let image = ImageConfig { stop_signal: "SIGQUIT".into(), ..image() };
    assert_eq!(plan(&container(), &image).stop_signal, Signal(3));
    let spec = ContainerSpec { stop_signal: Some("USR1".into()), ..container() };
    assert_eq!(plan(&spec, &image).stop_signal, Signal(10));
    assert_eq!(plan(&container(), &self::image()).stop_signal, Signal::TERM);
    let odd = ImageConfig { stop_signal: "nonsense".into(), ..image };
    assert_eq!(plan(&container(), &odd).stop_signal, Signal::TERM);
}

#[test]
fn network_ipc_and_host_name_are_the_vms() {
    for (mode, expected) in [
        (NamespaceMode::Container, Some(None)),
        (NamespaceMode::Pod, Some(Some("/g/pid"))),
        (NamespaceMode::Node, None),
    ] {
        let namespaces = Some(Namespaces { pid: mode, ..Namespaces::default() });
        let spec = secured(ContainerSecurity { namespaces, ..ContainerSecurity::default() });
        let all = spec.linux().as_ref().unwrap().namespaces().clone().unwrap();
        let pid = all.iter().find(|one| one.typ() == LinuxNamespaceType::Pid);
        let pid = pid.map(|one| one.path().as_ref().map(|path| path.to_str().unwrap()));
        assert_eq!(pid, expected);
        let others: Vec<_> =
            all.iter().map(LinuxNamespace::typ).filter(|typ| *typ != LinuxNamespaceType::Pid).collect();
        assert_eq!(others, [LinuxNamespaceType::Mount, LinuxNamespaceType::Cgroup]);
    }
}

#[test]
fn mounts_come_from_the_guest_and_kernel_settings_are_read_only() {
    let spec = secured(ContainerSecurity::default());
    let mounts = spec.mounts().clone().unwrap();
    let of = |path: &str| mounts.iter().find(|mount| mount.destination().to_str() == Some(path)).unwrap();
    for (path, source) in [
        ("/dev/shm", "/g/shm"),
        ("/etc/hosts", "/g/hosts"),
        ("/etc/hostname", "/g/hostname"),
        ("/etc/resolv.conf", "/g/resolv.conf"),
    ] {
        assert_eq!(of(path).source().as_ref().unwrap().to_str(), Some(source));
    }
    for path in ["/sys", "/sys/fs/cgroup"] {
        assert!(of(path).options().as_ref().unwrap().contains(&"ro".to_owned()), "{path}");
    }
    let privileged = secured(ContainerSecurity { privileged: true, ..ContainerSecurity::default() });
    let mounts = privileged.mounts().clone().unwrap();
    let sys = mounts.iter().find(|mount| mount.destination().to_str() == Some("/sys")).unwrap();
    assert!(sys.options().as_ref().unwrap().contains(&"rw".to_owned()));
}

/// Destination, source and last option of each mount.
fn mounted(mounts: Vec<Mount>) -> Vec<(String, String, String)> {
    let spec = plan(&ContainerSpec { mounts, ..container() }, &image()).oci;
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let all = spec.mounts().clone().unwrap();
    all.iter()
        .map(|one| {
            let access = one.options().as_ref().unwrap().last().unwrap().clone();
            (text(one.destination()), text(one.source().as_ref().unwrap()), access)
        })
        .collect()
}

fn host(host_path: &str, container_path: &str) -> Mount {
    Mount { host_path: host_path.into(), container_path: container_path.into(), ..Mount::default() }
}

#[test]
fn a_mount_of_the_host_comes_from_the_shared_directory_by_its_number() {
    let read_only = Mount { readonly: true, ..host("/b", "/x/../ro/.") };
    let recursive = Mount { readonly: true, recursive_read_only: true, ..host("/c", "/rro") };
    let slave = Mount { propagation: MountPropagation::HostToContainer, ..host("/d", "/../../late") };
    let image =
        Mount { image: "i".into(), readonly: true, container_path: "/image".into(), ..Mount::default() };
    let all = mounted(vec![host("/a", "/rw"), read_only, recursive, slave, image]);
    for (number, destination, access) in
        [(0, "/rw", "rw"), (1, "/ro", "rw"), (2, "/rro", "ro"), (3, "/late", "rw")]
    {
        let wanted = (destination.to_owned(), format!("/g/share/id1/{number}"), access.to_owned());
        assert!(all.contains(&wanted), "{wanted:?} in {all:?}");
    }
    assert!(all.contains(&("/image".to_owned(), "/g/image/4".to_owned(), "ro".to_owned())));
}

#[test]
fn a_mount_that_was_asked_for_takes_the_place_of_our_own() {
    let all = mounted(vec![host("/k/hosts", "/etc/hosts"), host("/k/log", "/dev/termination-log")]);
    let hosts: Vec<_> = all.iter().filter(|(destination, ..)| destination == "/etc/hosts").collect();
    assert_eq!(hosts, [&("/etc/hosts".to_owned(), "/g/share/id1/0".to_owned(), "rw".to_owned())]);
    let place = |path: &str| all.iter().position(|(destination, ..)| destination == path).unwrap();
    assert!(place("/dev") < place("/dev/termination-log"));
    assert!(place("/etc/hostname") < all.len());
}

#[test]
fn parents_are_mounted_before_what_lies_below_and_equals_in_their_order() {
    let all = mounted(vec![host("/1", "/a/b/c"), host("/2", "/a"), host("/3", "/a/b"), host("/4", "/a")]);
    let sources: Vec<_> = all
        .iter()
        .filter(|(destination, ..)| destination.starts_with("/a"))
        .map(|(_, s, _)| &s[13..])
        .collect();
    assert_eq!(sources, ["1", "3", "2", "0"]);
}

#[test]
fn capabilities_start_from_the_default_set() {
    let set = |add: &str, drop: &str, privileged| {
        let mut security = ContainerSecurity { privileged, ..ContainerSecurity::default() };
        (security.capabilities.add, security.capabilities.drop) = (words(add), words(drop));
        let spec = secured(security);
        let all = spec.process().as_ref().unwrap().capabilities().clone().unwrap();
        assert_eq!(all.bounding(), all.effective());
        assert_eq!(all.bounding(), all.permitted());
        all.effective().clone().unwrap()
    };
    assert_eq!(set("", "", false).len(), 14);
    assert!(set("net_admin", "", false).contains(&Capability::NetAdmin));
    assert!(!set("", "CAP_NET_RAW", false).contains(&Capability::NetRaw));
    assert_eq!(set("", "ALL", false).len(), 0);
    assert_eq!(set("NET_BIND_SERVICE", "ALL", false), [Capability::NetBindService].into());
    assert_eq!(set("ALL", "", false).len(), 41);
    assert_eq!(set("ALL", "SYS_ADMIN", false).len(), 40);
    assert_eq!(set("", "ALL", true).len(), 41);
}

#[test]
fn the_default_profile_denies_by_default_and_unconfined_has_none() {
    let profile = |seccomp, privileged| {
        let spec = secured(ContainerSecurity { seccomp, privileged, ..ContainerSecurity::default() });
        spec.linux().as_ref().unwrap().seccomp().clone()
    };
    assert_eq!(profile(None, false), None);
    assert_eq!(profile(Some(Profile::Unconfined), false), None);
    assert_eq!(profile(Some(Profile::RuntimeDefault), true), None);
    let default = profile(Some(Profile::RuntimeDefault), false).unwrap();
    assert_eq!(default.default_action(), LinuxSeccompAction::ScmpActErrno);
    let allows = |name: &str| {
        default.syscalls().as_ref().unwrap().iter().any(|rule| {
            rule.action() == LinuxSeccompAction::ScmpActAllow
                && rule.args().is_none()
                && rule.names().iter().any(|one| one == name)
        })
    };
    for name in ["read", "openat", "execve", "futex", "clock_gettime", "chroot", "process_vm_readv"] {
        assert!(allows(name), "{name}");
    }
    for name in [
        "mount",
        "syslog",
        "mbind",
        "setns",
        "unshare",
        "bpf",
        "kexec_load",
        "io_uring_setup",
        "clone",
        "add_key",
        "socket",
    ] {
        assert!(!allows(name), "{name}");
    }
}

#[test]
fn the_default_profile_lets_sockets_be_made_but_of_vsock_and_of_the_kernels_ciphers() {
    let spec =
        secured(ContainerSecurity { seccomp: Some(Profile::RuntimeDefault), ..ContainerSecurity::default() });
    let seccomp = spec.linux().as_ref().unwrap().seccomp().clone().unwrap();
    let rules = seccomp.syscalls().clone().unwrap();
    let of_socket = rules.iter().filter(|rule| rule.names().iter().any(|name| name == "socket"));
    let args: Vec<_> = of_socket.map(|rule| rule.args().clone().unwrap()).collect();
    // One condition a rule: several on one argument are alternatives to some filters.
    assert!(args.iter().all(|args| args.len() == 1 && args[0].index() == 0), "{args:?}");
    let allowed = |family: u64| {
        args.iter().any(|args| match args[0].op() {
            LinuxSeccompOperator::ScmpCmpLt => family < args[0].value(),
            LinuxSeccompOperator::ScmpCmpEq => family == args[0].value(),
            LinuxSeccompOperator::ScmpCmpGt => family > args[0].value(),
            other => panic!("{other:?}"),
        })
    };
    let refused: Vec<u64> = (0..64).filter(|family| !allowed(*family)).collect();
    assert_eq!(refused, [38, 40]);
}

#[test]
fn a_profile_of_the_nodes_takes_the_default_ones_place() {
    let security = ContainerSecurity {
        seccomp: Some(Profile::Localhost("/p.json".into())),
        ..ContainerSecurity::default()
    };
    let spec = ContainerSpec { security, ..container() };
    let mut all = plan(&spec, &image());
    let action = |all: &ContainerPlan| {
        all.oci.linux().as_ref().unwrap().seccomp().as_ref().map(LinuxSeccomp::default_action)
    };
    // Never without a filter, should the profile not come.
    assert_eq!(action(&all), Some(LinuxSeccompAction::ScmpActErrno));
    let profile = SeccompProfile::parse(br#"{ "defaultAction": "SCMP_ACT_LOG" }"#).unwrap();
    all.confine(&profile).unwrap();
    assert_eq!(action(&all), Some(LinuxSeccompAction::ScmpActLog));
    assert_eq!(spec.seccomp_profile_path(), Some("/p.json"));
    let security = ContainerSecurity { privileged: true, ..spec.security };
    assert_eq!(ContainerSpec { security, ..container() }.seccomp_profile_path(), None);
}

#[test]
fn no_call_is_on_the_default_profile_twice() {
    let spec =
        secured(ContainerSecurity { seccomp: Some(Profile::RuntimeDefault), ..ContainerSecurity::default() });
    let seccomp = spec.linux().as_ref().unwrap().seccomp().clone().unwrap();
    let mut names = seccomp.syscalls().as_ref().unwrap()[0].names().clone();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn limits_are_the_agents_to_write_and_the_score_is_the_process() {
    let resources = Resources { memory_limit_bytes: 64 << 20, oom_score_adj: -997, ..Resources::default() };
    let spec = plan(&ContainerSpec { resources, ..container() }, &image()).oci;
    assert_eq!(spec.process().as_ref().unwrap().oom_score_adj(), Some(-997));
    let linux = spec.linux().clone().unwrap();
    assert_eq!(linux.cgroups_path().as_ref().unwrap().to_str(), Some("/pod/id1"));
    let value = serde_json::to_value(linux.resources()).unwrap();
    assert_eq!(value.as_object().unwrap().keys().collect::<Vec<_>>(), ["devices"]);
}

#[test]
fn a_device_that_the_guest_has_is_a_node_and_a_rule_and_no_disk() {
    let device = |host_path: &str, container_path: &str| Device {
        host_path: host_path.into(),
        container_path: container_path.into(),
        permissions: "rw".into(),
        ..Device::default()
    };
    let devices = vec![
        device("/dev/fuse", "/dev/f"),
        device("/dev/null", "/dev/null"),
        device("/dev/sda", "/dev/xvda"),
    ];
    let plan = plan(&ContainerSpec { devices, ..container() }, &image());
    let disks: Vec<_> = plan.block_devices.iter().map(|disk| (disk.device, disk.path.as_str())).collect();
    assert_eq!(disks, [(2, "/dev/xvda")]);
    let linux = plan.oci.linux().clone().unwrap();
    let nodes = linux.devices().clone().unwrap();
    let nodes: Vec<_> =
        nodes.iter().map(|node| (node.path().to_str().unwrap(), node.major(), node.minor())).collect();
    assert_eq!(nodes, [("/dev/f", 10, 229)]);
    let rules = linux.resources().clone().unwrap().devices().clone().unwrap();
    let of_fuse = |rule: &LinuxDeviceCgroup| (rule.major(), rule.minor()) == (Some(10), Some(229));
    let access: Vec<_> =
        rules.iter().filter(|rule| of_fuse(rule)).map(|rule| rule.access().clone()).collect();
    assert_eq!(access, [Some("rw".to_owned())], "nobody has it without asking");
}

#[test]
fn nodes_of_devices_have_the_owner_and_mode_that_is_asked_for() {
    let device = |host_path: &str| Device {
        host_path: host_path.into(),
        container_path: host_path.into(),
        permissions: "rw".into(),
        ..Device::default()
    };
    let owned =
        |host_path: &str| Device { uid: Some(7), gid: Some(8), mode: Some(0o640), ..device(host_path) };
    let made = |devices: Vec<Device>| {
        let plan = plan(&ContainerSpec { devices, ..container() }, &image());
        let nodes = plan.oci.linux().as_ref().unwrap().devices().clone().unwrap_or_default();
        let nodes = nodes.iter().map(|node| (node.uid(), node.gid(), node.file_mode())).collect::<Vec<_>>();
        (nodes, plan.block_devices.iter().map(|disk| (disk.uid, disk.gid, disk.mode)).collect::<Vec<_>>())
    };
    // The agent has the process's user.
    let plain = made(vec![device("/dev/fuse"), device("/dev/sda")]);
    assert_eq!(plain, (vec![(None, None, Some(0o666))], vec![(None, None, 0o660)]));
    let asked = made(vec![owned("/dev/fuse"), owned("/dev/null"), owned("/dev/sda")]);
    let (uid, gid) = (Some(7), Some(8));
    assert_eq!(asked, (vec![(uid, gid, Some(0o640)); 2], vec![(uid, gid, 0o640)]));
}

#[test]
fn a_tmpfs_takes_the_place_of_our_own_mount_and_of_the_images_volume() {
    let tmpfs = |path: &str| Tmpfs { container_path: path.into(), options: vec!["size=1m".into()] };
    let volumes = ["/cache".to_owned(), "/kept".to_owned()];
    let image = ImageConfig { volumes: volumes.into(), ..image() };
    let plan =
        plan(&ContainerSpec { tmpfs: vec![tmpfs("/dev/shm"), tmpfs("/cache/.")], ..container() }, &image);
    let mounts = plan.oci.mounts().clone().unwrap();
    for path in ["/dev/shm", "/cache"] {
        let at: Vec<_> = mounts.iter().filter(|mount| mount.destination() == Path::new(path)).collect();
        assert_eq!(at.len(), 1, "{path}");
        assert_eq!(at[0].typ().as_deref(), Some("tmpfs"));
        assert_eq!(at[0].options().as_deref(), Some(&["size=1m".to_owned()][..]));
    }
    assert_eq!(plan.declared_volumes.len(), 1);
}

#[test]
fn a_mount_without_programs_is_mounted_so_in_the_guest() {
    let mount = Mount { nosuid: true, noexec: true, ..host("/a", "/a") };
    let plan = plan(&ContainerSpec { mounts: vec![mount, host("/b", "/b")], ..container() }, &image());
    let options = |path: &str| {
        let mounts = plan.oci.mounts().clone().unwrap();
        let mount = mounts.into_iter().find(|mount| mount.destination() == Path::new(path)).unwrap();
        mount.options().clone().unwrap()
    };
    assert_eq!(options("/a"), ["rbind", "rprivate", "nodev", "rw", "nosuid", "noexec"]);
    assert_eq!(options("/b"), ["rbind", "rprivate", "nodev", "rw"]);
}

#[test]
fn paths_are_hidden_by_default_and_as_the_caller_says() {
    let masked = |masked_paths, privileged| {
        let spec = secured(ContainerSecurity { masked_paths, privileged, ..ContainerSecurity::default() });
        spec.linux().as_ref().unwrap().masked_paths().clone().unwrap_or_default()
    };
    assert!(masked(None, false).contains(&"/proc/kcore".to_owned()));
    assert_eq!(masked(Some(vec!["/bin/ls".into()]), false), ["/bin/ls"]);
    assert_eq!(masked(Some(Vec::new()), false), [""; 0]);
    assert_eq!(masked(None, true), [""; 0]);
}

#[test]
fn an_exec_has_the_containers_environment_and_its_own_arguments() {
    let spec = ContainerSpec { env: vec![("A".into(), "1".into())], ..container() };
    let process = plan(&spec, &image()).oci.process().clone().unwrap();
    let exec =
        |command, tty| ExecPlan::resolve(&process, ExecSpec { command: words(command), tty, stdin: true });
    let plan = exec("ls -l", true);
    assert_eq!(plan.process.args().clone().unwrap(), ["ls", "-l"]);
    assert_eq!((plan.process.terminal(), plan.tty, plan.stdin), (Some(true), true, true));
    let env = plan.process.env().clone().unwrap();
    assert!(env.contains(&"A=1".to_owned()) && env.contains(&"TERM=xterm".to_owned()), "{env:?}");
    assert_eq!(exec("ls", false).process.terminal(), Some(false));
}

#[test]
fn an_exec_with_a_terminal_has_a_kind_of_terminal_that_can_do_more_than_print() {
    let kind = |container_has: &str, tty| {
        let env =
            vec![("A".into(), "1".into()), ("TERM".into(), container_has.into()), ("B".into(), "2".into())];
        let process = plan(&ContainerSpec { env, ..container() }, &image()).oci.process().clone().unwrap();
        let plan = ExecPlan::resolve(&process, ExecSpec { command: words("sh"), tty, stdin: true });
        let env = plan.process.env().clone().unwrap();
        env.into_iter().filter(|entry| entry.starts_with("TERM=")).collect::<Vec<_>>()
    };
    assert_eq!(kind("dumb", true), ["TERM=xterm"]);
    assert_eq!(kind("dumb", false), ["TERM=dumb"]);
    // These are kinds of their own, and the container asks for them.
    assert_eq!((kind("linux", true), kind("", true)), (words("TERM=linux"), words("TERM=")));
}

#[test]
fn nothing_comes_in_from_a_librarys_defaults() {
    let spec = secured(ContainerSecurity::default());
    assert_eq!(spec.hostname(), &None);
    let value = serde_json::to_value(&spec).unwrap();
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let sorted = |text: &str| {
        let mut keys = words(text);
        keys.sort();
        keys
    };
    assert_eq!(sorted(&keys(&value).join(" ")), sorted("ociVersion root mounts process linux"));
    let linux = "namespaces cgroupsPath resources rootfsPropagation maskedPaths readonlyPaths";
    assert_eq!(sorted(&keys(&value["linux"]).join(" ")), sorted(linux));
}

#[test]
fn the_spec_survives_its_way_to_the_agent() {
    let security =
        ContainerSecurity { seccomp: Some(Profile::RuntimeDefault), ..ContainerSecurity::default() };
    let spec = secured(security);
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec);
}

#[test]
fn a_relative_working_directory_of_the_image_is_refused() {
    let image = ImageConfig { working_dir: "srv".into(), ..image() };
    let error = ContainerPlan::resolve(&pod(), &container(), &image, "id1", &PATHS).unwrap_err();
    assert!(error.to_string().contains("\"srv\" is not absolute"), "{error}");
    // Asked for, another one takes its place.
    plan(&ContainerSpec { working_dir: "/w".into(), ..container() }, &image);
}

#[test]
fn a_volume_at_dev_or_sys_is_all_that_is_there() {
    let destinations = |container_path: &str| {
        let mount =
            Mount { host_path: "/h".into(), container_path: container_path.into(), ..Mount::default() };
        let plan = plan(&ContainerSpec { mounts: vec![mount], ..container() }, &image());
        let mounts = plan.oci.mounts().clone().unwrap();
        mounts.iter().map(|mount| mount.destination().display().to_string()).collect::<Vec<_>>()
    };
    let below = |all: &[String], top: &str| {
        all.iter().filter(|path| path.starts_with(top)).cloned().collect::<Vec<_>>()
    };
    assert_eq!(below(&destinations("/dev/"), "/dev"), ["/dev", "/dev/shm"]);
    assert_eq!(below(&destinations("/sys"), "/sys"), ["/sys"]);
    assert_eq!(below(&destinations("sys/fs"), "/sys"), ["/sys", "/sys/fs", "/sys/fs/cgroup"]);
}

#[test]
fn a_null_device_of_the_node_is_the_guests_own() {
    let mount = |host_path: &str| Mount {
        host_path: host_path.into(),
        container_path: "/etc/motd".into(),
        ..Mount::default()
    };
    let of = |host_path: &str| {
        let spec = ContainerSpec { mounts: vec![mount(host_path)], ..container() };
        let plan = plan(&spec, &image());
        let mounts = plan.oci.mounts().clone().unwrap();
        let found = mounts.into_iter().find(|one| one.destination() == Path::new("/etc/motd")).unwrap();
        (found.source().clone().unwrap().display().to_string(), plan.shared_mounts)
    };
    assert_eq!(of("/dev/null"), ("/dev/null".to_owned(), false));
    // Others are not of every guest.
    assert_eq!(of("/dev/fuse"), ("/g/share/id1/0".to_owned(), true));
}
