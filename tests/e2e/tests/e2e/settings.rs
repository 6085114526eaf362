//! Settings left by a CNI plugin in the pod's namespace on the node: applied in the guest, shown, or refused.

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::network::PLUGINS;
use tests_e2e::traces::Traces;
use tests_e2e::wait::until;
use tests_e2e::{Host, spec};

/// The user of the proxy. Its own connections are not redirected.
const PROXY: i64 = 1337;

/// The settings of a mesh: each connection to port 80, by nft, or to port 81, by iptables, goes to the
/// proxy's port, unless it is the proxy's.
const MESH: &str = "
nft -f - <<'RULES'
table ip mesh {
    chain output {
        type nat hook output priority -100;
        meta skuid != 1337 tcp dport 80 redirect to :15001
    }
    chain prerouting {
        type nat hook prerouting priority -100;
        iifname \"eth0\" tcp dport 80 redirect to :15001
    }
}
RULES
iptables-nft -t nat -A OUTPUT -p tcp -m owner ! --uid-owner 1337 -m multiport --dports 81,82 -j REDIRECT --to-ports 15001
echo 2 > /proc/sys/net/ipv4/conf/eth0/rp_filter
echo 40000 60000 > /proc/sys/net/ipv4/ip_local_port_range
";

/// A host with a plugin `mesh`: it makes a bridge's interface, then runs these commands in the pod's
/// namespace.
pub(crate) async fn host_with(commands: &str, settings: &str) -> Option<Host> {
    let mut host = Host::start().await?;
    let file = host.network.conf_dir.join("10-test.conflist");
    let mut network: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    network["plugins"][0]["type"] = "mesh".into();
    host.network.configure(&network).unwrap();
    let config = std::fs::read_to_string(host.daemon.config()).unwrap();
    let config = config.replace("[cni]\n", &format!("[cni]\nsettings = {settings:?}\n"));
    std::fs::write(host.daemon.config(), config).unwrap();
    let script = format!(
        "answer=$({PLUGINS}/bridge) || {{ status=$?; printf '%s' \"$answer\"; exit $status; }}\n\
         [ \"$CNI_COMMAND\" = ADD ] || exit 0\n\
         nsenter --net=\"$CNI_NETNS\" sh -e >&2 <<'END' || exit 1\n{commands}\nEND\n\
         printf '%s' \"$answer\""
    );
    host.put_before_plugin("mesh", &script).await.unwrap();
    Some(host)
}

/// A container of the proxy's user, serving a page on the proxy's port and nothing on another.
fn proxy(image: &str) -> v1::ContainerConfig {
    let line = "mkdir /dev/shm/www; echo proxied > /dev/shm/www/index.html; exec busybox httpd -f -p 15001 -h /dev/shm/www";
    let mut config = spec::shell("proxy", image, line);
    let context = config.linux.get_or_insert_default().security_context.get_or_insert_default();
    context.run_as_user = Some(v1::Int64Value { value: PROXY });
    config
}

/// A line requesting a page, successful if it is the proxy's. A static busybox's wget crashes with a time
/// limit.
fn asks_the_proxy(address: &str, port: u16) -> String {
    format!(
        "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | busybox nc -w 5 {address} {port} 2>&1 | grep -q '^proxied$'"
    )
}

/// Waits until the proxy answers for an address: the proxy must listen first.
async fn proxied(client: &mut Client, container: &str, address: &str, port: u16) {
    let ask = asks_the_proxy(address, port);
    until(format!("the proxy's answer for {address}:{port}"), async || {
        client.exec(container, &["sh", "-c", &ask], 60).await.unwrap().exit_code == 0
    })
    .await;
}

/// Gives a container the users of its pod, as the kubelet does.
fn with_users_of(pod: &v1::PodSandboxConfig, mut config: v1::ContainerConfig) -> v1::ContainerConfig {
    let context = pod.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let users = context.and_then(|context| context.namespace_options.as_ref()?.userns_options.clone());
    let context = config.linux.get_or_insert_default().security_context.get_or_insert_default();
    context.namespace_options.get_or_insert_default().userns_options = users;
    config
}

/// Runs a pod of proxy and app behind the mesh, and checks the targets of connections.
async fn see_the_mesh(host: &Host, config: &v1::PodSandboxConfig) {
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(config).await.unwrap();
    let (_, info) = client.pod_status_verbose(&pod).await.unwrap();
    assert_eq!(info["settings_passed_by"], serde_json::json!([]));
    let proxy = client.run(&pod, with_users_of(config, proxy(&image))).await.unwrap();
    let app = spec::container("app", &image, &["sleep", "3600"]);
    let app = client.run(&pod, with_users_of(config, app)).await.unwrap();

    // No host has this address (RFC 5737): only the rule of the pod's own kernel leads anywhere.
    for port in [80, 81] {
        proxied(&mut client, &app, "192.0.2.1", port).await;
    }
    let ip = client.pod_ip(&pod).await.unwrap();
    assert_eq!(tests_e2e::http::get(&ip, 80).await.unwrap(), "proxied\n");
    // The proxy's own connections go on: to a port of the pod without a listener.
    let own = asks_the_proxy(&ip, 80);
    assert_ne!(client.exec(&proxy, &["sh", "-c", &own], 60).await.unwrap().exit_code, 0);

    let sysctls = "cat /proc/sys/net/ipv4/conf/eth0/rp_filter /proc/sys/net/ipv4/ip_local_port_range";
    assert_eq!(client.sh(&app, sysctls).await.unwrap(), "2\n40000\t60000\n");
    client.remove_pod(&pod).await.unwrap();
}

#[tokio::test]
async fn rules_and_sysctls_of_a_mesh_hold_in_the_guest() {
    let Some(host) = host_with(MESH, "replay-or-refuse").await else { return };
    see_the_mesh(&host, &spec::pod("mesh", host.dir())).await;
    host.stop().await.unwrap();
}

#[tokio::test]
async fn rules_of_a_mesh_hold_in_a_pod_with_users_of_its_own() {
    let Some(host) = host_with(MESH, "replay-or-refuse").await else { return };
    let ids = vec![v1::IdMapping { container_id: 0, host_id: 200_000, length: 65_536 }];
    let user = v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: ids.clone(), gids: ids };
    let mut config = spec::pod("users", host.dir());
    let context = config.linux.get_or_insert_default().security_context.get_or_insert_default();
    context.namespace_options.get_or_insert_default().userns_options = Some(user);
    see_the_mesh(&host, &config).await;
    host.stop().await.unwrap();
}

#[tokio::test]
async fn the_pods_own_sysctl_wins_over_that_of_a_plugin() {
    let Some(host) = host_with(MESH, "replay").await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut config = spec::pod("own", host.dir());
    let sysctls = &mut config.linux.get_or_insert_default().sysctls;
    sysctls.insert("net.ipv4.ip_local_port_range".into(), "50000 51000".into());
    let pod = client.run_pod(&config).await.unwrap();
    let app = client.run(&pod, spec::container("app", &image, &["sleep", "3600"])).await.unwrap();
    let range = client.sh(&app, "cat /proc/sys/net/ipv4/ip_local_port_range").await.unwrap();
    assert_eq!(range, "50000\t51000\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_plugins_sysctl_wins_over_those_of_every_pod() {
    let commands = "echo 512 > /proc/sys/net/ipv4/ip_unprivileged_port_start";
    let Some(host) = host_with(commands, "replay-or-refuse").await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("plugins", host.dir())).await.unwrap();
    let app = client.run(&pod, spec::container("app", &image, &["sleep", "3600"])).await.unwrap();
    let sysctls = "cd /proc/sys/net/ipv4; cat ip_unprivileged_port_start ip_forward";
    assert_eq!(client.sh(&app, sysctls).await.unwrap(), "512\n1\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn settings_that_no_guest_can_have_are_shown_or_refused() {
    let rule = "ip rule add fwmark 0x111 lookup 333\nnft add table ip fine";
    let Some(host) = host_with(rule, "replay").await else { return };
    let mut client = host.client();
    let pod = client.run_pod(&spec::pod("shown", host.dir())).await.unwrap();
    let (_, info) = client.pod_status_verbose(&pod).await.unwrap();
    let shown = info["settings_passed_by"].as_array().unwrap();
    assert_eq!(shown.len(), 1, "{shown:?}");
    let line = shown[0].as_str().unwrap();
    assert!(line.starts_with("the `ip rule`") && line.ends_with("to table 333, left by mesh"), "{line}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();

    for settings in ["replay-or-refuse", "refuse"] {
        let Some(host) = host_with(rule, settings).await else { return };
        let before = Traces::take(host.dir()).unwrap();
        let mut client = host.client();
        let error = client.run_pod(&spec::pod("refused", host.dir())).await.unwrap_err();
        assert!(error.message().contains("to table 333, left by mesh"), "{error}");
        assert!(error.message().contains(&format!("cni.settings = {settings:?}")), "{error}");
        assert_eq!(error.message().contains("table ip fine"), settings == "refuse", "{error}");
        assert!(client.pods().await.unwrap().is_empty());
        assert_eq!(host.left_since(&before).await, Vec::<String>::new());
        host.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_plain_network_is_never_refused() {
    let Some(host) = host_with("true", "refuse").await else { return };
    let mut client = host.client();
    let pod = client.run_pod(&spec::pod("plain", host.dir())).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
