//! Pods start whole or not at all.

use super::{World, life, pod};
use crate::{PodErrorKind, PodState, StartConfig};
use runtime_guest::ReplayedSettings;
use runtime_net::{PodNftTable, PodSettings, PodSysctl, SettingsPolicy};
use runtime_spec::{HandlerConfig, PodSpec};

#[tokio::test]
async fn a_started_pod_is_ready_and_its_guest_knows_who_it_is() {
    let world = World::new().await;
    let id = world.pods.run(PodSpec { hostname: "web-0".into(), ..pod("web") }).await.unwrap();
    assert!(id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    let view = world.pods.pod(&id).unwrap();
    assert_eq!(view.state, PodState::Ready);
    assert_eq!(view.ips, ["10.1.0.7".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(view.vmm_pid, Some(5_000_000));
    assert_eq!(view.ledger.size.memory_bytes % (2 << 20), 0);
    let configured = world.script.state().configured.clone().unwrap();
    assert_eq!(configured.hostname, "web-0");
    assert_eq!(configured.resolv_conf, b"nameserver 9.9.9.9\n");
    assert!(String::from_utf8(configured.hosts).unwrap().contains("10.1.0.7\tweb-0\n"));
    assert_eq!(
        (configured.interfaces[0].slot, configured.interfaces[0].mac.as_str()),
        (7, "02:00:00:00:00:01")
    );
    assert_eq!((configured.scratch_slot, configured.random_seed.len()), (11, 64));
    assert!(configured.shared_pid_namespace && configured.realtime_ns > 0);
}

#[tokio::test]
async fn a_guest_gets_the_name_servers_behind_the_nodes_stub() {
    let world = World::new().await;
    let resolv_conf = |name: &str| world.dir.path().join(name);
    std::fs::write(resolv_conf("resolv.conf"), "nameserver 127.0.0.53\noptions edns0\n").unwrap();
    let configured = || world.script.state().configured.clone().unwrap().resolv_conf;
    world.pods.run(pod("cut-off")).await.unwrap();
    assert_eq!(configured(), b"options edns0\n");
    std::fs::write(resolv_conf("resolved.conf"), "nameserver 192.0.2.1\n").unwrap();
    world.pods.run(pod("web")).await.unwrap();
    assert_eq!(configured(), b"nameserver 192.0.2.1\n");
}

/// A sysctl and a packet filter left by plugins.
fn left(policy: SettingsPolicy) -> PodSettings {
    let sysctl = PodSysctl { path: "net/a".into(), value: "1".into(), plugin: "tuning".into() };
    let table = PodNftTable { name: "ip nat".into(), plugin: "mesh".into(), messages: vec![7] };
    PodSettings { sysctls: vec![sysctl], nft_tables: vec![table], passed_by: Vec::new(), policy }
}

#[tokio::test]
async fn settings_of_plugins_go_to_the_guest_and_what_it_does_not_take_is_shown() {
    let world = World::new().await;
    world.script.state().settings = left(SettingsPolicy::Replay);
    world.script.state().replayed = ReplayedSettings { known: true, ..Default::default() };
    let id = world.pods.run(pod("whole")).await.unwrap();
    assert!(world.pods.pod(&id).unwrap().settings_passed_by.is_empty());
    let configured = world.script.state().configured.clone().unwrap();
    assert_eq!((&*configured.network_sysctls[0].path, &*configured.network_sysctls[0].value), ("net/a", "1"));
    assert_eq!(configured.nft_tables[0].messages, [7]);

    world.script.state().replayed.nft_failures = vec![(0, "no such file".into()), (9, "beyond".into())];
    let id = world.pods.run(pod("half")).await.unwrap();
    let expected = ["the nftables table ip nat, left by mesh: no such file"];
    assert_eq!(world.pods.pod(&id).unwrap().settings_passed_by, expected);

    world.script.state().replayed = ReplayedSettings::default();
    let id = world.pods.run(pod("old")).await.unwrap();
    let passed_by = &world.pods.pod(&id).unwrap().settings_passed_by;
    assert_eq!(passed_by.len(), 2);
    assert!(passed_by.iter().all(|line| line.ends_with("the guest's agent is of an earlier build")));
}

#[tokio::test]
async fn the_guest_knows_which_sysctls_nobody_asked_for() {
    let world = World::new().await;
    let sysctls = [("net.ipv4.ip_forward".to_owned(), "0".to_owned())].into();
    world.pods.run(PodSpec { sysctls, ..pod("web") }).await.unwrap();
    let configured = world.script.state().configured.clone().unwrap();
    assert_eq!(configured.sysctls["net.ipv4.ip_forward"], "0");
    let defaults = configured.default_sysctls;
    assert!(defaults.iter().all(|name| configured.sysctls.contains_key(name)), "{defaults:?}");
    assert!(defaults.iter().any(|name| name == "net.ipv4.ip_unprivileged_port_start"), "{defaults:?}");
    assert!(!defaults.iter().any(|name| name == "net.ipv4.ip_forward"), "{defaults:?}");
}

#[tokio::test]
async fn a_pod_whose_guest_does_not_take_a_setting_is_undone_where_that_is_refused() {
    let world = World::new().await;
    world.script.state().settings = left(SettingsPolicy::ReplayOrRefuse);
    let sysctl_failures = vec![(0, "no such file".to_owned())];
    world.script.state().replayed = ReplayedSettings { known: true, sysctl_failures, ..Default::default() };
    let error = world.pods.run(pod("web")).await.unwrap_err().chain();
    assert!(error.starts_with("setting up the network: CNI plugins left settings"), "{error}");
    assert!(error.contains("the sysctl net/a = 1, left by tuning: no such file"), "{error}");
    world.assert_nothing_left();
    world.script.state().replayed.sysctl_failures.clear();
    world.pods.run(pod("web")).await.unwrap();
}

#[tokio::test]
async fn every_phase_is_measured() {
    let world = World::new().await;
    let id = world.pods.run(pod("web")).await.unwrap();
    let phases = world.pods.phases(&id).unwrap();
    let mut names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
    names.sort_unstable();
    let all = crate::counters::PHASE_NAMES;
    assert_eq!(names, all);
    let total = phases.iter().find(|phase| phase.name == "total").unwrap();
    assert!(phases.iter().all(|phase| phase.start + phase.duration <= total.duration));
}

#[tokio::test]
async fn a_failure_in_any_phase_undoes_all_before_it_and_frees_the_name() {
    for (step, doing) in [
        ("network.setup", "setting up the network"),
        ("vm.spawn", "starting the VMM"),
        ("vm.boot", "booting the VM"),
        ("vm.wait_ready", "booting the VM"),
        ("vm.plug_scratch", "plugging the scratch disk"),
        ("vm.plug_net", "plugging the interface eth0"),
        ("vm.plug_balloon", "plugging the balloon"),
        ("agent.configure", "configuring the guest"),
    ] {
        let world = World::new().await;
        world.script.fail(step);
        let error = world.pods.run(pod("web")).await.unwrap_err();
        assert!(error.chain().starts_with(doing), "{step}: {}", error.chain());
        assert!(error.chain().contains(step), "{step}: {}", error.chain());
        world.assert_nothing_left();
        world.script.repair();
        world.pods.run(pod("web")).await.unwrap();
    }
}

#[tokio::test]
async fn a_guest_has_a_balloon_where_its_vmm_has_one() {
    for (without_balloon, slot) in [(false, 4), (true, 0)] {
        let world = World::new().await;
        world.script.state().without_balloon = without_balloon;
        world.pods.run(pod("web")).await.unwrap();
        assert_eq!(world.script.count("vm.plug_balloon"), usize::from(!without_balloon));
        assert_eq!(world.script.state().configured.as_ref().unwrap().balloon_slot, slot);
    }
}

#[tokio::test]
async fn a_missing_scratch_template_undoes_the_rest() {
    let world = World::new().await;
    std::fs::remove_file(world.dir.path().join("scratch")).unwrap();
    let error = world.pods.run(pod("web")).await.unwrap_err();
    assert!(error.chain().starts_with("making the scratch disk"), "{}", error.chain());
    world.assert_nothing_left();
}

#[tokio::test(start_paused = true)]
async fn a_failing_network_calls_a_slow_boot_off() {
    let world = World::new().await;
    let asked = tokio::time::Instant::now();
    world.script.hang("vm.wait_ready");
    world.script.fail("network.setup");
    let error = world.pods.run(pod("web")).await.unwrap_err();
    assert!(error.chain().starts_with("setting up the network"), "{}", error.chain());
    // The clock is the test's own: it moves only when everything waits.
    assert!(asked.elapsed() < std::time::Duration::from_secs(100));
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_guest_that_dies_while_booting_leaves_its_last_words_in_the_error() {
    let world = World::new().await;
    world.script.hang("vm.wait_ready");
    let pods = world.pods.clone();
    let running = tokio::spawn(async move { pods.run(pod("web")).await });
    world.until(|world| world.script.count("vm.wait_ready") == 1).await;
    world.script.vm().crash("a\nlast words\n");
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.starts_with("booting the VM: the guest kernel panicked: no more"), "{text}");
    assert!(text.ends_with("last words"), "{text}");
    world.assert_nothing_left();
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_says_a_word_is_given_up() {
    let world = World::new().await;
    world.script.hang("vm.wait_ready");
    let error = world.pods.run(pod("web")).await.unwrap_err();
    assert!(error.to_string().contains("said nothing within 120 s"), "{error}");
    assert!(error.to_string().contains("hello from the console"), "{error}");
    world.assert_nothing_left();
}

#[tokio::test]
async fn identical_calls_join_and_start_one_pod() {
    let world = World::new().await;
    let (first, second) = tokio::join!(world.pods.run(pod("web")), world.pods.run(pod("web")));
    let id = first.unwrap();
    assert_eq!(second.unwrap(), id);
    assert_eq!(world.pods.run(pod("web")).await.unwrap(), id);
    assert_eq!(world.script.count("vm.spawn"), 1);
    let other = PodSpec { attempt: 1, ..pod("web") };
    assert_ne!(world.pods.run(other).await.unwrap(), id);
}

#[tokio::test]
async fn joined_calls_fail_together() {
    let world = World::new().await;
    world.script.fail("agent.configure");
    let (first, second) = tokio::join!(world.pods.run(pod("web")), world.pods.run(pod("web")));
    assert_eq!(first.unwrap_err().chain(), second.unwrap_err().chain());
    assert_eq!(world.script.count("vm.spawn"), 1);
    world.assert_nothing_left();
}

#[tokio::test]
async fn the_same_name_with_another_spec_is_refused() {
    let world = World::new().await;
    world.pods.run(pod("web")).await.unwrap();
    let other = PodSpec { hostname: "else".into(), ..pod("web") };
    assert_eq!(world.pods.run(other).await.unwrap_err().kind(), PodErrorKind::AlreadyExists);
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_stop_the_start() {
    let world = World::new().await;
    {
        let running = world.pods.run(pod("web"));
        tokio::pin!(running);
        assert!(futures::poll!(&mut running).is_pending());
    }
    world.until(|world| world.pods.pods().len() == 1).await;
    let id = world.pods.run(pod("web")).await.unwrap();
    assert_eq!(world.pods.pod(&id).unwrap().state, PodState::Ready);
}

#[tokio::test]
async fn an_undo_that_fails_is_reported_and_removing_finishes_it() {
    let world = World::new().await;
    world.script.fail("agent.configure");
    world.script.fail("network.teardown");
    let error = world.pods.run(pod("web")).await.unwrap_err();
    assert!(error.to_string().contains("could not be undone"), "{error}");
    let view = world.pods.pods()[0].clone();
    assert_eq!(view.state, PodState::NotReady);
    assert!(view.unclean.as_deref().unwrap().contains("taking the network down"), "{view:?}");
    assert_eq!(world.script.running().len(), 0, "what could be undone was");
    let again = world.pods.run(pod("web")).await.unwrap_err();
    assert_eq!(again.kind(), PodErrorKind::AlreadyExists);
    assert!(world.pods.remove(&view.id).await.is_err());
    world.script.repair();
    world.pods.remove(&view.id).await.unwrap();
    world.assert_nothing_left();
    world.pods.run(pod("web")).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_anything_is_made() {
    let world = World::new().await;
    let handler = PodSpec { runtime_handler: "other".into(), ..pod("web") };
    let error = world.pods.run(handler).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::InvalidArgument);
    assert!(error.to_string().contains("kvm"), "{error}");
    let mut spec = pod("web");
    spec.namespaces.network = runtime_spec::NamespaceMode::Node;
    assert_eq!(world.pods.run(spec).await.unwrap_err().kind(), PodErrorKind::InvalidArgument);
    assert!(world.script.state().seen.is_empty());
}

#[tokio::test]
async fn new_rules_are_for_pods_that_come_and_leave_the_others_as_they_are() {
    let world = World::new().await;
    let old = world.pods.run(pod("old")).await.unwrap();
    let size = |id: &str| world.pods.pod(id).unwrap().ledger.size;
    let before = size(&old);
    let large = HandlerConfig {
        name: "large".into(),
        memory_default: HandlerConfig::default().memory_default * 4,
        scratch_bytes: 1 << 20,
        ..HandlerConfig::default()
    };
    world.pods.set_start(StartConfig {
        handlers: vec![large],
        default_handler: Some("large".into()),
        ..StartConfig::default()
    });
    let new = world.pods.run(pod("new")).await.unwrap();
    assert!(size(&new).memory_bytes > before.memory_bytes);
    assert_eq!((size(&old), world.pods.pod(&old).unwrap().state), (before, PodState::Ready));
    let gone = world.pods.run(PodSpec { runtime_handler: "kvm".into(), ..pod("kvm") }).await.unwrap_err();
    assert!(gone.to_string().contains("there are: large"), "{gone}");
    world.pods.remove(&old).await.unwrap();
}

#[tokio::test]
async fn a_pod_is_refused_by_the_name_of_the_wall_that_its_vmm_would_lack() {
    let world = World::new().await;
    let old = world.pods.run(pod("old")).await.unwrap();
    let rules = |walls_missing: &[&str]| StartConfig {
        handlers: vec![HandlerConfig {
            name: "kvm".into(),
            scratch_bytes: 1 << 20,
            ..HandlerConfig::default()
        }],
        default_handler: Some("kvm".into()),
        walls_missing: walls_missing.iter().map(ToString::to_string).collect(),
        ..StartConfig::default()
    };
    world.pods.set_start(rules(&["landlock (not there)"]));
    let refused = world.pods.run(pod("new")).await.unwrap_err();
    assert_eq!(refused.kind(), PodErrorKind::FailedPrecondition);
    assert!(refused.to_string().ends_with("asks for: landlock (not there)"), "{refused}");
    assert_eq!(world.pods.pod(&old).unwrap().state, PodState::Ready, "what runs goes on");
    world.pods.set_start(rules(&[]));
    world.pods.run(pod("new")).await.unwrap();
}

#[tokio::test]
async fn a_pod_beyond_the_sum_of_scratch_disks_is_refused_until_another_has_ended() {
    let world = World::new().await;
    let handler = HandlerConfig {
        name: "kvm".into(),
        scratch_bytes: 4 << 20,
        scratch_sum_bytes: Some(9 << 20),
        ..HandlerConfig::default()
    };
    world.pods.set_start(StartConfig {
        handlers: vec![handler],
        default_handler: Some("kvm".into()),
        ..StartConfig::default()
    });
    let first = world.pods.run(pod("first")).await.unwrap();
    // With the name of the handler that the others have without naming it.
    let named = |name: &str| PodSpec { runtime_handler: "kvm".into(), ..pod(name) };
    let second = world.pods.run(named("second")).await.unwrap();
    assert_eq!(world.pods.run(named("second")).await.unwrap(), second, "asked twice");
    for spec in [pod("third"), named("third")] {
        let refused = world.pods.run(spec).await.unwrap_err();
        assert_eq!(refused.kind(), PodErrorKind::FailedPrecondition);
        assert!(refused.to_string().contains("handler \"kvm\" may come to 9 MiB"), "{refused}");
    }
    world.pods.stop(&first).await.unwrap();
    world.pods.run(pod("third")).await.unwrap();
}

#[tokio::test]
async fn a_scratch_disk_counts_until_it_is_removed() {
    let world = World::new().await;
    let handler = HandlerConfig {
        name: "kvm".into(),
        scratch_bytes: 1 << 20,
        scratch_sum_bytes: Some(1 << 20),
        ..HandlerConfig::default()
    };
    let default_handler = Some("kvm".into());
    let start = StartConfig { handlers: vec![handler], default_handler, ..StartConfig::default() };
    world.pods.set_start(start);
    let refused = async || {
        let refused = world.pods.run(pod("next")).await.unwrap_err();
        assert!(refused.to_string().contains("its pods have 1 MiB"), "{refused}");
    };
    let id = world.pods.run(pod("web")).await.unwrap();
    world.script.vm().crash("oops\n");
    world.until(|world| world.pods.pod(&id).unwrap().state == PodState::NotReady).await;
    refused().await;
    world.script.fail("network.teardown");
    world.pods.stop(&id).await.unwrap_err();
    let next = world.pods.run(pod("next")).await.unwrap();
    world.script.fail("vm.shutdown");
    world.pods.stop(&next).await.unwrap_err();
    let error = world.pods.run(pod("third")).await.unwrap_err();
    assert!(error.to_string().contains("its pods have 1 MiB"), "{error}");
    world.script.repair();
    world.pods.stop(&next).await.unwrap();
    world.pods.run(pod("third")).await.unwrap();
}

#[test]
fn the_scratch_disks_of_an_earlier_daemons_pods_count_for_their_handler() {
    let (left, ()) = life(None, async |world: &World| drop(world.pods.run(pod("first")).await.unwrap()));
    life(Some(left), async |world: &World| {
        let handler = HandlerConfig {
            name: "kvm".into(),
            scratch_bytes: 1 << 20,
            scratch_sum_bytes: Some(1 << 20),
            ..HandlerConfig::default()
        };
        // No pod without a handler's name runs here any more.
        world.pods.set_start(StartConfig { handlers: vec![handler], ..StartConfig::default() });
        let named = PodSpec { runtime_handler: "kvm".into(), ..pod("second") };
        let refused = world.pods.run(named).await.unwrap_err();
        assert!(refused.to_string().contains("its pods have 1 MiB"), "{refused}");
    });
}

#[tokio::test]
async fn a_limit_of_writable_layers_needs_an_agent_that_keeps_it() {
    let world = World::new().await;
    world.script.state().protocol = Some(1);
    world.pods.run(pod("without")).await.unwrap();
    let mut limited = pod("limited");
    limited.annotations.insert("podvisor.io/writable-layer-limit".into(), "8Mi".into());
    let refused = world.pods.run(limited.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("agent is too old"), "{refused}");
    world.script.state().protocol = None;
    world.pods.run(limited).await.unwrap();
}
