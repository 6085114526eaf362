//! Failing starts: the error names the phase and the cause, and nothing is left behind.

use tests_e2e::traces::Traces;
use tests_e2e::wait::until;
use tests_e2e::{Host, spec};
use tonic::Code;

#[tokio::test]
async fn a_handler_that_is_not_there_is_refused_by_name() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let error = client.run_pod_on(&spec::pod("handler", host.dir()), "gvisor").await.unwrap_err();
    assert!(error.message().contains("gvisor"), "{error}");
    assert!(client.pods().await.unwrap().is_empty());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn an_image_that_is_not_there_is_refused_by_name() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let pod = client.run_pod(&spec::pod("no-image", host.dir())).await.unwrap();
    let error =
        client.create(&pod, spec::container("main", "nowhere/nothing:1", &["true"])).await.unwrap_err();
    assert!(error.message().contains("nowhere/nothing:1"), "{error}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// Puts a shell script in front of the daemon's CNI plugins and makes it the only one of the network.
async fn with_plugin(host: &mut Host, name: &str, script: &str) {
    host.put_before_plugin(name, script).await.unwrap();
    host.network
        .configure(
            &serde_json::json!({ "cniVersion": "1.0.0", "name": "test", "plugins": [{ "type": name }] }),
        )
        .unwrap();
}

#[tokio::test]
async fn a_cni_plugin_that_fails_undoes_the_pod() {
    let Some(mut host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let script = r#"[ "$CNI_COMMAND" = ADD ] || exit 0
echo '{"cniVersion":"1.0.0","code":11,"msg":"no addresses left"}'; exit 1"#;
    with_plugin(&mut host, "stingy", script).await;
    let mut client = host.client();
    let error = client.run_pod(&spec::pod("cni", host.dir())).await.unwrap_err();
    assert!(error.message().contains("network") && error.message().contains("no addresses left"), "{error}");
    assert!(client.pods().await.unwrap().is_empty());
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_network_that_cannot_be_undone_stays_on_record_until_it_can() {
    let Some(mut host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let script = r#"[ "$CNI_COMMAND" = DEL ] && [ -e "${0%/*}/mended" ] && exit 0
echo '{"cniVersion":"1.0.0","code":5,"msg":"the fabric is down"}'; exit 1"#;
    with_plugin(&mut host, "broken", script).await;
    let mut client = host.client();
    let error = client.run_pod(&spec::pod("unclean", host.dir())).await.unwrap_err();
    assert!(error.message().contains("the fabric is down"), "{error}");
    let pods = client.pods().await.unwrap();
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0].state(), proto_cri::v1::PodSandboxState::SandboxNotready);
    assert!(client.remove_pod(&pods[0].id).await.is_err());
    std::fs::write(host.dir().join("plugins/mended"), "").unwrap();
    client.remove_pod(&pods[0].id).await.unwrap();
    assert!(client.pods().await.unwrap().is_empty());
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}

/// The plugin goes on when the daemon is killed. If it ended its ADD after the next daemon's DEL, nobody would
/// ever free its lease.
#[tokio::test]
async fn a_plugin_left_in_its_add_by_a_killed_daemon_keeps_no_lease() {
    let Some(mut host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let script = r#"cd "${0%/*}"
if [ "$CNI_COMMAND" = DEL ]; then rm -f lease; touch deleted; exit; fi
echo $$ > adding.new; mv adding.new adding
until [ -e deleted ]; do sleep 0.1; done
touch lease"#;
    with_plugin(&mut host, "slow", script).await;
    let plugins = host.dir().join("plugins");
    let (mut client, config) = (host.client(), spec::pod("killed", host.dir()));
    let starting = tokio::spawn(async move { client.run_pod(&config).await });
    until("the plugin to begin", async || plugins.join("adding").exists()).await;
    let plugin = std::fs::read_to_string(plugins.join("adding")).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    starting.await.unwrap().unwrap_err();
    until("DEL", async || plugins.join("deleted").exists()).await;
    // One that has ended, and is not yet waited for, has no environment.
    let environment = format!("/proc/{}/environ", plugin.trim());
    until("the plugin to end", async || std::fs::read(&environment).unwrap_or_default().is_empty()).await;
    assert!(!plugins.join("lease").exists(), "the plugin ended its ADD after the DEL");
    until("the pod to be undone", async || host.left_since(&before).await.is_empty()).await;
    assert!(host.client().pods().await.unwrap().is_empty());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_cni_result_that_is_not_json_is_an_error_that_says_so() {
    let Some(mut host) = Host::start().await else { return };
    with_plugin(&mut host, "babbler", "[ \"$CNI_COMMAND\" != ADD ] || echo this is not JSON").await;
    let mut client = host.client();
    let error = client.run_pod(&spec::pod("babel", host.dir())).await.unwrap_err();
    assert!(error.message().contains("babbler") && error.message().contains("JSON"), "{error}");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_guest_that_panics_is_reported_with_the_end_of_its_console() {
    let Some(mut host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    // A root image without an agent: the kernel finds no init and panics.
    let broken = host.dir().join("broken");
    std::fs::create_dir_all(&broken).unwrap();
    let config = std::fs::read_to_string(host.daemon.config()).unwrap();
    let guest_image =
        config.lines().find_map(|line| line.strip_prefix("guest_image = ")).unwrap().trim_matches('"');
    for name in ["vmlinux", "scratch.ext4", "volume.ext4"] {
        std::os::unix::fs::symlink(std::path::Path::new(guest_image).join(name), broken.join(name)).unwrap();
    }
    std::fs::write(broken.join("root.erofs"), vec![0u8; 2 << 20]).unwrap();
    // Without templates: otherwise the daemon might make one meanwhile, and its VM would still exist at the
    // end.
    let config = config.replace(guest_image, broken.to_str().unwrap()).replace("template = \"node\"\n", "");
    std::fs::write(host.daemon.config(), config).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    let error = client.run_pod(&spec::pod("panic", host.dir())).await.unwrap_err();
    assert!(error.message().contains("boot"), "{error}");
    assert!(error.message().contains("Kernel panic") || error.message().contains("panicked"), "{error}");
    assert!(error.message().contains("VFS"), "the last console lines are there: {error}");
    assert!(client.pods().await.unwrap().is_empty());
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_command_that_is_not_there_fails_the_start_and_ends_the_container() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("no-command", host.dir())).await.unwrap();
    let error = client.run(&pod, spec::container("main", &image, &["/no/such/program"])).await.unwrap_err();
    assert!(error.message().contains("/no/such/program"), "{error}");
    assert_ne!(error.code(), Code::Internal, "{error}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn what_this_version_cannot_do_is_refused_by_its_field() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let mut config = spec::pod("node-network", host.dir());
    let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    security.namespace_options.as_mut().unwrap().network = proto_cri::v1::NamespaceMode::Node.into();
    let error = client.run_pod(&config).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("network"), "{error}");
    assert!(client.pods().await.unwrap().is_empty());
    host.stop().await.unwrap();
}
