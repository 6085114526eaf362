//! Refused specs, by the field's name, and accepted ones.

use runtime_spec::{
    ContainerSecurity, ContainerSpec, Device, Dns, Hugepages, IdMapping, Mount, MountPropagation,
    NamespaceMode, Namespaces, PodSecurity, PodSpec, Profile, Resources, SpecError,
};

fn pod() -> PodSpec {
    PodSpec { name: "web".into(), namespace: "default".into(), uid: "u1".into(), ..PodSpec::default() }
}

fn container() -> ContainerSpec {
    ContainerSpec { name: "c".into(), image: "busybox".into(), ..ContainerSpec::default() }
}

fn secured(security: ContainerSecurity) -> ContainerSpec {
    ContainerSpec { security, ..container() }
}

fn mount(host_path: &str, container_path: &str) -> Mount {
    Mount { host_path: host_path.into(), container_path: container_path.into(), ..Mount::default() }
}

fn pids(pid: NamespaceMode) -> Namespaces {
    Namespaces { pid, ..Namespaces::default() }
}

fn field(error: &SpecError) -> &'static str {
    match error {
        SpecError::Unsupported { field, .. }
        | SpecError::Invalid { field, .. }
        | SpecError::Beyond { field, .. } => field,
    }
}

#[test]
fn what_the_kubelet_always_sends_passes() {
    let zero = Hugepages { page_size: "2MB".into(), limit_bytes: 0 };
    let resources = Resources {
        cpu_period: 100_000,
        cpu_shares: 2,
        oom_score_adj: 1000,
        hugepages: vec![zero],
        unified: [("memory.oom.group".to_owned(), "1".to_owned())].into(),
        ..Resources::default()
    };
    let security = ContainerSecurity {
        namespaces: Some(pids(NamespaceMode::Container)),
        run_as_user: Some(0),
        masked_paths: Some(vec!["/proc/kcore".into()]),
        readonly_paths: Some(vec!["/proc/sys".into()]),
        seccomp: Some(Profile::Unconfined),
        apparmor: Some(Profile::RuntimeDefault),
        selinux: ":::".into(),
        ..ContainerSecurity::default()
    };
    ContainerSpec { resources, security, ..container() }.check(&pod()).unwrap();
    let security = PodSecurity { seccomp: Some(Profile::RuntimeDefault), ..PodSecurity::default() };
    let spec = PodSpec { security, overhead: Some(Resources::default()), ..pod() };
    spec.check().unwrap();
}

#[test]
fn a_pod_that_asks_for_what_we_cannot_do_is_refused_by_name() {
    let network = Namespaces { network: NamespaceMode::Node, ..Namespaces::default() };
    let ipc = Namespaces { ipc: NamespaceMode::Node, ..Namespaces::default() };
    let user = Namespaces { user: NamespaceMode::Container, ..Namespaces::default() };
    let target = pids(NamespaceMode::Target("c1".into()));
    let apparmor = PodSecurity { apparmor: Some(Profile::Localhost("p".into())), ..PodSecurity::default() };
    let selinux = PodSecurity { selinux: "u:r:t:s0".into(), ..PodSecurity::default() };
    for (spec, name) in [
        (PodSpec { namespaces: network, ..pod() }, "namespace_options.network"),
        (PodSpec { namespaces: ipc, ..pod() }, "namespace_options.ipc"),
        (PodSpec { namespaces: user, ..pod() }, "userns_options"),
        (PodSpec { namespaces: target, ..pod() }, "namespace_options.pid"),
        (PodSpec { security: apparmor, ..pod() }, "apparmor"),
        (PodSpec { security: selinux, ..pod() }, "selinux_options"),
    ] {
        let error = spec.check().unwrap_err();
        assert!(field(&error).contains(name), "{error}");
    }
}

#[test]
fn a_container_that_asks_for_what_we_cannot_do_is_refused_by_name() {
    let device = Device { host_path: "/dev/sda".into(), permissions: "r".into(), ..Device::default() };
    let huge = Hugepages { page_size: "1GB".into(), limit_bytes: 1 << 30 };
    let with_huge = Resources { hugepages: vec![huge], ..Resources::default() };
    let profile = Some(Profile::Localhost("p.json".into()));
    let seccomp = ContainerSecurity { seccomp: profile.clone(), ..ContainerSecurity::default() };
    let apparmor = ContainerSecurity { apparmor: profile, ..ContainerSecurity::default() };
    let selinux = ContainerSecurity { selinux: "u:r:t:s0".into(), ..ContainerSecurity::default() };
    for (spec, name, value) in [
        (ContainerSpec { devices: vec![device], ..container() }, "devices.container_path", "absolute"),
        (ContainerSpec { resources: with_huge, ..container() }, "resources.hugepage_limits", "1GB"),
        (secured(seccomp), "security_context.seccomp", "p.json"),
        (secured(apparmor), "security_context.apparmor", "p.json"),
        (secured(selinux), "security_context.selinux_options", "u:r:t:s0"),
    ] {
        let error = spec.check(&pod()).unwrap_err();
        assert_eq!(field(&error), name);
        assert!(error.to_string().contains(value), "{error}");
    }
}

#[test]
fn nonsense_is_refused() {
    let group_alone = ContainerSecurity { run_as_group: Some(5), ..ContainerSecurity::default() };
    let negative = ContainerSecurity { run_as_user: Some(-1), ..ContainerSecurity::default() };
    let large = ContainerSecurity { supplemental_groups: vec![1 << 31], ..ContainerSecurity::default() };
    let named = ContainerSecurity { run_as_username: "a:b".into(), ..ContainerSecurity::default() };
    let nobody = Namespaces { pid: NamespaceMode::Target(String::new()), ..Namespaces::default() };
    let nobody = ContainerSecurity { namespaces: Some(nobody), ..ContainerSecurity::default() };
    let score = Resources { oom_score_adj: 1001, ..Resources::default() };
    let pinned = Resources { cpuset_cpus: "1-0".into(), ..Resources::default() };
    for spec in [
        ContainerSpec { name: String::new(), ..container() },
        ContainerSpec { name: "../c".into(), ..container() },
        ContainerSpec { image: String::new(), ..container() },
        ContainerSpec { env: vec![("A=B".into(), String::new())], ..container() },
        ContainerSpec { env: vec![("A".into(), "\0".into())], ..container() },
        ContainerSpec { working_dir: "tmp".into(), ..container() },
        ContainerSpec { log_path: Some("../../etc/passwd".into()), ..container() },
        ContainerSpec { log_path: Some("/etc/passwd".into()), ..container() },
        ContainerSpec { stop_signal: Some("SIGFOO".into()), ..container() },
        ContainerSpec { resources: score, ..container() },
        ContainerSpec { resources: pinned, ..container() },
        secured(group_alone),
        secured(negative),
        secured(large),
        secured(named),
        secured(nobody),
    ] {
        let error = spec.check(&pod()).unwrap_err();
        assert!(matches!(error, SpecError::Invalid { .. }), "{error}");
    }
    for spec in [
        PodSpec { uid: String::new(), ..pod() },
        PodSpec { hostname: "a".repeat(65), ..pod() },
        PodSpec { hostname: "a b".into(), ..pod() },
        PodSpec { log_directory: Some("logs".into()), ..pod() },
        PodSpec { cgroup_parent: "/a/../../b".into(), ..pod() },
        PodSpec { cgroup_parent: "a--b.slice".into(), ..pod() },
        PodSpec { cgroup_parent: "/kubepods.slice/-a.slice".into(), ..pod() },
        PodSpec { cgroup_parent: ".slice".into(), ..pod() },
        PodSpec { sysctls: [("../x".to_owned(), "1".to_owned())].into(), ..pod() },
        PodSpec { dns: Some(Dns { servers: vec!["1.1.1.1\nx".into()], ..Dns::default() }), ..pod() },
    ] {
        let error = spec.check().unwrap_err();
        assert!(matches!(error, SpecError::Invalid { .. }), "{error}");
    }
}

fn mapped(mappings: &[(u32, u32, u32)]) -> Namespaces {
    let mapping = |&(container_id, host_id, length): &_| IdMapping { container_id, host_id, length };
    let ids: Vec<IdMapping> = mappings.iter().map(mapping).collect();
    Namespaces { user: NamespaceMode::Pod, uids: ids.clone(), gids: ids, ..Namespaces::default() }
}

#[test]
fn a_user_namespace_is_one_stretch_of_ids_from_its_root_on() {
    let good = mapped(&[(0, 1000, 100_000)]);
    let check = |namespaces: Namespaces| PodSpec { namespaces, ..pod() }.check();
    check(good.clone()).unwrap();
    check(mapped(&[(0, 65536, u32::MAX - 65536)])).unwrap();
    for bad in [
        mapped(&[]),
        mapped(&[(1, 1000, 10)]),
        mapped(&[(0, 1000, 0)]),
        mapped(&[(0, 1000, u32::MAX)]),
        mapped(&[(0, 1000, 10), (0, 2000, 10)]),
        Namespaces { gids: Vec::new(), ..good.clone() },
        Namespaces { user: NamespaceMode::Node, ..good.clone() },
        Namespaces { user: NamespaceMode::Target("c".into()), ..good.clone() },
    ] {
        let error = check(bad.clone()).unwrap_err();
        assert_eq!(field(&error), "security_context.namespace_options.userns_options", "{bad:?}");
    }
    let seen = check(Namespaces { pid: NamespaceMode::Node, ..good.clone() }).unwrap_err();
    assert_eq!(field(&seen), "security_context.namespace_options.pid");
}

#[test]
fn a_container_is_in_its_pods_user_namespace() {
    let of_pod = PodSpec { namespaces: mapped(&[(0, 1000, 100)]), ..pod() };
    let in_namespaces =
        |namespaces| secured(ContainerSecurity { namespaces, ..ContainerSecurity::default() }).check(&of_pod);
    in_namespaces(None).unwrap();
    in_namespaces(Some(of_pod.namespaces.clone())).unwrap();
    for other in [Namespaces::default(), mapped(&[(0, 2000, 100)])] {
        let error = in_namespaces(Some(other)).unwrap_err();
        assert!(error.to_string().contains("differs from the pod's"), "{error}");
    }
}

#[test]
fn owners_of_a_mount_are_mapped_as_the_pods_users_or_not_at_all() {
    let of_pod = PodSpec { namespaces: mapped(&[(0, 1000, 100)]), ..pod() };
    let with = |uids: &Namespaces, gids: &Namespaces| {
        let (uid_mappings, gid_mappings) = (uids.uids.clone(), gids.gids.clone());
        ContainerSpec {
            mounts: vec![Mount { uid_mappings, gid_mappings, ..mount("/a", "/d") }],
            ..container()
        }
    };
    let (same, other, none) = (&of_pod.namespaces, &mapped(&[(0, 2000, 100)]), &Namespaces::default());
    with(none, none).check(&of_pod).unwrap();
    with(same, same).check(&of_pod).unwrap();
    for (spec, of, name) in [
        (with(same, same), &pod(), "mounts.uid_mappings"),
        (with(other, same), &of_pod, "mounts.uid_mappings"),
        (with(none, same), &of_pod, "mounts.uid_mappings"),
        (with(same, other), &of_pod, "mounts.gid_mappings"),
        (with(same, none), &of_pod, "mounts.gid_mappings"),
    ] {
        assert_eq!(field(&spec.check(of).unwrap_err()), name);
    }
}

#[test]
fn mounts_that_cannot_be_are_refused_by_field() {
    let image = Mount { image: "i".into(), readonly: true, ..mount("", "/d") };
    let slave = MountPropagation::HostToContainer;
    let recursive = Mount { readonly: true, recursive_read_only: true, ..mount("/a", "/d") };
    for good in [
        mount("/a", "/d/../e"),
        mount("/a", "d"),
        Mount { propagation: slave, ..mount("/a", "/d") },
        Mount { selinux_relabel: true, ..mount("/a", "/d") },
        Mount { image_sub_path: "etc".into(), ..image.clone() },
        recursive.clone(),
    ] {
        ContainerSpec { mounts: vec![good], ..container() }.check(&pod()).unwrap();
    }
    for (bad, name, words) in [
        (mount("a", "/d"), "mounts.host_path", "not absolute"),
        (mount("", "/d"), "mounts.host_path", "not absolute"),
        (mount("/a\0", "/d"), "mounts.host_path", "NUL"),
        (mount("/a", "d\0"), "mounts.container_path", "NUL"),
        (mount("/a", ""), "mounts.container_path", "is empty"),
        (mount("/a", "/d/.."), "mounts.container_path", "root"),
        (
            Mount { propagation: MountPropagation::Bidirectional, ..mount("/a", "/d") },
            "mounts.propagation",
            "cannot mount into the node",
        ),
        (Mount { readonly: false, ..recursive.clone() }, "mounts.recursive_read_only", "needs readonly"),
        (Mount { propagation: slave, ..recursive }, "mounts.recursive_read_only", "PRIVATE"),
        (Mount { readonly: false, ..image.clone() }, "mounts.readonly", "never writable"),
        (Mount { host_path: "/a".into(), ..image.clone() }, "mounts.host_path", "an image is named"),
        (Mount { propagation: slave, ..image.clone() }, "mounts.propagation", "image volume"),
        (Mount { image_sub_path: "x".into(), ..mount("/a", "/d") }, "mounts.image_sub_path", "image"),
    ] {
        let error = ContainerSpec { mounts: vec![bad], ..container() }.check(&pod()).unwrap_err();
        assert!(matches!(error, SpecError::Invalid { .. }), "{error}");
        assert!(field(&error) == name && error.to_string().contains(words), "{error}");
    }
    let many = ContainerSpec { mounts: vec![mount("/a", "/d"); 513], ..container() };
    assert_eq!(field(&many.check(&pod()).unwrap_err()), "mounts");
}

#[test]
fn a_shared_pid_namespace_needs_a_pod_that_has_one() {
    let apart = PodSpec { namespaces: pids(NamespaceMode::Container), ..pod() };
    let sharing =
        ContainerSecurity { namespaces: Some(pids(NamespaceMode::Pod)), ..ContainerSecurity::default() };
    assert_eq!(
        field(&secured(sharing.clone()).check(&apart).unwrap_err()),
        "security_context.namespace_options.pid"
    );
    secured(sharing).check(&pod()).unwrap();
    container().check(&apart).unwrap();
}

#[test]
fn a_vm_of_its_own_keeps_levels_of_a_label_apart() {
    let level = ContainerSecurity { selinux: ":::s0:c1,c2".into(), ..ContainerSecurity::default() };
    secured(level).check(&pod()).unwrap();
    let typed = ContainerSecurity { selinux: "::spc_t:s0".into(), ..ContainerSecurity::default() };
    let error = secured(typed).check(&pod()).unwrap_err().to_string();
    assert!(error.contains("spc_t") && error.contains("only a level"), "{error}");
}

#[test]
fn a_container_may_join_anothers_pid_namespace() {
    let target = pids(NamespaceMode::Target("c1".into()));
    let security = ContainerSecurity { namespaces: Some(target), ..ContainerSecurity::default() };
    let spec = secured(security);
    spec.check(&pod()).unwrap();
    assert_eq!(spec.pid_target(), Some("c1"));
    assert_eq!(container().pid_target(), None);
}

#[test]
fn a_privileged_container_needs_no_profile() {
    let security = ContainerSecurity {
        privileged: true,
        seccomp: Some(Profile::Localhost("/p".into())),
        ..ContainerSecurity::default()
    };
    let spec = secured(security);
    // A pod made without such containers may get one for debugging.
    for privileged in [false, true] {
        let security = PodSecurity { privileged, ..PodSecurity::default() };
        spec.check(&PodSpec { security, ..pod() }).unwrap();
    }
}

#[test]
fn a_long_pod_name_makes_a_host_name_that_linux_takes() {
    let spec = PodSpec { name: format!("{}.x", "a".repeat(63)), ..pod() };
    assert_eq!(spec.effective_hostname(), "a".repeat(63));
    assert_eq!(PodSpec { hostname: "h".into(), ..spec }.effective_hostname(), "h");
}

#[test]
fn name_service_becomes_a_resolv_conf() {
    let dns = Dns {
        servers: vec!["10.0.0.10".into(), "10.0.0.11".into()],
        searches: vec!["a.local".into(), "b".into()],
        options: vec!["ndots:5".into()],
    };
    let text = "search a.local b\nnameserver 10.0.0.10\nnameserver 10.0.0.11\noptions ndots:5\n";
    assert_eq!(dns.resolv_conf(), text);
    assert_eq!(Dns::default().resolv_conf(), "");
}
