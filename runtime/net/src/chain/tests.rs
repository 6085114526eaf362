//! The exec protocol against shell scripts as plugins: no privileges, no network.

use std::{
    fs,
    io::Write,
    net::IpAddr,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::json;

use runtime_spec::{PortMapping, Protocol};

use super::*;
use crate::config;

/// A folder of scripts. Each notes its call and then runs `body`.
struct Scripts(tempfile::TempDir);

impl Scripts {
    fn new(plugins: &[(&str, &str)]) -> Self {
        let scripts = Self(tempfile::tempdir().unwrap());
        for (name, body) in plugins {
            let text = format!(
                "#!/bin/sh\ncd {dir}\necho $CNI_COMMAND {name} >> calls\ncat > {name}.$CNI_COMMAND.stdin\n\
                 env | grep ^CNI_ > {name}.$CNI_COMMAND.env\n{body}\n",
                dir = scripts.path().display()
            );
            install(&scripts.path().join(name), &text);
        }
        scripts
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn plugins(&self) -> Plugins {
        Plugins {
            dirs: vec![self.path().to_owned()],
            time_max: Duration::from_secs(30),
            open_files_max: Some(77),
            busy_wait: Duration::from_millis(1),
        }
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path().join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn stdin(&self, plugin: &str, command: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path().join(format!("{plugin}.{command}.stdin"))).unwrap())
            .unwrap()
    }

    fn environment(&self, plugin: &str, command: &str) -> String {
        fs::read_to_string(self.path().join(format!("{plugin}.{command}.env"))).unwrap()
    }
}

/// Writes a script from another process. A descriptor open for writing in this one could leak into a plugin
/// started by another test at this moment, and the script would be "busy".
fn install(path: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
}

fn list(version: &str, plugins: &Value) -> NetworkList {
    let text = json!({"cniVersion": version, "name": "net", "plugins": plugins}).to_string();
    config::parse(Path::new("/etc/cni/net.d/10-net.conflist"), text.as_bytes()).unwrap()
}

fn spec() -> PodNetworkSpec {
    PodNetworkSpec {
        pod_id: "p1".into(),
        name: "web".into(),
        namespace: "shop".into(),
        uid: "u-1".into(),
        ..Default::default()
    }
}

fn chain<'a>(plugins: &'a Plugins, list: &'a NetworkList, spec: &'a PodNetworkSpec) -> Chain<'a> {
    Chain { plugins, list, spec, netns: "/run/netns/x".into() }
}

const ETH0: &str = r#"echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/x"}],"ips":[{"address":"10.0.0.5/24","interface":0}]}'"#;

#[tokio::test]
async fn each_plugin_gets_the_result_before_it_and_del_runs_backwards() {
    let second = r#"echo '{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.9/24"}],"second":true}'"#;
    let scripts = Scripts::new(&[("first", ETH0), ("second", second)]);
    let (plugins, list, spec) = (
        scripts.plugins(),
        list("1.0.0", &json!([{"type": "first", "mtu": 1400}, {"type": "second"}])),
        spec(),
    );
    let chain = chain(&plugins, &list, &spec);

    let (result, reported) = chain.add(None).await.unwrap();
    assert_eq!(reported.ips, ["10.0.0.9".parse::<std::net::IpAddr>().unwrap()]);
    chain.del(&result).await.unwrap();

    let expected = ["ADD first", "ADD second", "DEL second", "DEL first"];
    assert_eq!(scripts.calls(), expected);
    assert_eq!(
        scripts.stdin("first", "ADD"),
        json!({"cniVersion": "1.0.0", "name": "net", "type": "first", "mtu": 1400})
    );
    assert_eq!(scripts.stdin("second", "ADD")["prevResult"]["ips"][0]["address"], "10.0.0.5/24");
    assert_eq!(scripts.stdin("first", "DEL")["prevResult"]["second"], true);
}

#[tokio::test]
async fn the_environment_is_that_of_the_specification() {
    let scripts = Scripts::new(&[("first", ETH0)]);
    let (plugins, list, spec) = (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}])), spec());
    chain(&plugins, &list, &spec).add(None).await.unwrap();
    let environment = scripts.environment("first", "ADD");
    for line in [
        "CNI_COMMAND=ADD",
        "CNI_CONTAINERID=p1",
        "CNI_NETNS=/run/netns/x",
        "CNI_IFNAME=eth0",
        "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=p1;K8S_POD_UID=u-1",
        &format!("CNI_PATH={}", scripts.path().display()),
    ] {
        assert!(environment.lines().any(|l| l == line), "{line} is not in\n{environment}");
    }
}

#[tokio::test]
async fn capabilities_reach_only_the_plugins_that_declare_them() {
    let scripts = Scripts::new(&[("first", ETH0), ("second", ETH0), ("third", ETH0)]);
    let plugins = scripts.plugins();
    let list = list(
        "1.0.0",
        &json!([
            {"type": "first"},
            {"type": "second", "capabilities": {"portMappings": true, "mac": true, "bandwidth": true}},
            {"type": "third", "capabilities": {"portMappings": false}},
        ]),
    );
    let mut spec = spec();
    let port = |host_port| PortMapping {
        host_port,
        container_port: 80,
        protocol: Protocol::Tcp,
        host_ip: "127.0.0.1".into(),
    };
    spec.port_mappings = vec![port(8080), port(0)];
    spec.bandwidth.egress_bits = Some(1_000_000);
    chain(&plugins, &list, &spec).add(None).await.unwrap();

    for without in ["first", "third"] {
        assert_eq!(scripts.stdin(without, "ADD").get("runtimeConfig"), None, "{without}");
    }
    let second = scripts.stdin("second", "ADD");
    assert_eq!(second.get("capabilities"), None);
    let expected = json!({
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1"}],
        "bandwidth": {"egressRate": 1_000_000, "egressBurst": u32::MAX},
    });
    assert_eq!(second["runtimeConfig"], expected);
}

#[tokio::test]
async fn a_plugin_has_the_limit_of_descriptors_that_was_set() {
    let limit = r#"echo '{"cniVersion":"1.0.0","limit":"'$(ulimit -n)'"}'"#;
    let scripts = Scripts::new(&[("first", limit), ("second", ETH0)]);
    let (plugins, list, spec) =
        (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}, {"type": "second"}])), spec());
    chain(&plugins, &list, &spec).add(None).await.unwrap();
    assert_eq!(scripts.stdin("second", "ADD")["prevResult"]["limit"], "77");
}

#[tokio::test]
async fn a_plugins_error_names_plugin_command_and_words() {
    let scripts = Scripts::new(&[
        ("first", ETH0),
        ("second", r#"echo '{"code":11,"msg":"no room","details":"10.0.0.0/24"}'; exit 1"#),
    ]);
    let (plugins, list, spec) =
        (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}, {"type": "second"}])), spec());
    let error = chain(&plugins, &list, &spec).add(None).await.unwrap_err();
    assert!(matches!(error, NetError::Plugin { code: 11, command: "ADD", .. }), "{error:?}");
    assert_eq!(error.to_string(), "CNI plugin second ADD: no room: 10.0.0.0/24 (code 11: try again later)");
}

#[tokio::test]
async fn a_failure_without_an_error_object_shows_stderr() {
    let scripts = Scripts::new(&[("first", "echo 'modprobe: no such thing' >&2; exit 3")]);
    let (plugins, list, spec) = (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}])), spec());
    let error = chain(&plugins, &list, &spec).add(None).await.unwrap_err().to_string();
    assert!(error.contains("exit status: 3") && error.contains("modprobe: no such thing"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_not_json_is_shown() {
    let scripts = Scripts::new(&[("first", "echo 'ok, all done'")]);
    let (plugins, list, spec) = (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}])), spec());
    let error = chain(&plugins, &list, &spec).add(None).await.unwrap_err().to_string();
    assert!(error.contains("not JSON") && error.contains("ok, all done"), "{error}");
}

#[tokio::test]
async fn an_empty_answer_to_add_is_an_error() {
    let scripts = Scripts::new(&[("first", "true")]);
    let (plugins, list, spec) = (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}])), spec());
    let error = chain(&plugins, &list, &spec).add(None).await.unwrap_err().to_string();
    assert!(error.contains("nothing"), "{error}");
}

#[tokio::test]
async fn an_answer_beyond_the_bound_is_refused() {
    let scripts = Scripts::new(&[("first", "head -c 2000000 /dev/zero")]);
    let (plugins, list, spec) = (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}])), spec());
    let error = chain(&plugins, &list, &spec).add(None).await.unwrap_err().to_string();
    assert!(error.contains("larger than 1 MiB"), "{error}");
}

#[tokio::test]
async fn a_plugin_that_hangs_is_killed_with_its_children() {
    let scripts = Scripts::new(&[("first", "sleep 1000 & echo $! > child; wait")]);
    let (mut plugins, list, spec) = (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}])), spec());
    plugins.time_max = Duration::from_millis(500);
    let error = chain(&plugins, &list, &spec).add(None).await.unwrap_err();
    assert!(matches!(error, NetError::PluginTimeout { .. }), "{error:?}");
    let child = fs::read_to_string(scripts.path().join("child")).unwrap();
    let gone = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        // Killed, but perhaps not yet reaped by the local reaper of orphans.
        stat.map_or(true, |stat| stat.contains(") Z "))
    };
    for _ in 0..100 {
        if gone() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the plugin's child {child} is still running");
}

#[tokio::test]
async fn del_stops_at_the_first_failure() {
    let scripts = Scripts::new(&[("first", "true"), ("second", "exit 1")]);
    let (plugins, list, spec) =
        (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}, {"type": "second"}])), spec());
    chain(&plugins, &list, &spec).del(&Value::Null).await.unwrap_err();
    assert_eq!(scripts.calls(), ["DEL second"]);
}

#[tokio::test]
async fn old_versions_have_no_result_at_del() {
    let scripts = Scripts::new(&[("first", "true")]);
    let (plugins, list, spec) = (scripts.plugins(), list("0.3.1", &json!([{"type": "first"}])), spec());
    let chain = chain(&plugins, &list, &spec);
    chain.del(&json!({"ips": []})).await.unwrap();
    assert_eq!(scripts.calls(), ["DEL first"]);
    assert_eq!(scripts.stdin("first", "DEL").get("prevResult"), None);
}

#[tokio::test]
async fn a_missing_binary_is_named_with_the_places_that_were_searched() {
    let scripts = Scripts::new(&[]);
    let (plugins, list, spec) = (scripts.plugins(), list("1.0.0", &json!([{"type": "absent"}])), spec());
    let error = chain(&plugins, &list, &spec).add(None).await.unwrap_err().to_string();
    assert!(error.contains("absent") && error.contains("10-net.conflist"), "{error}");
    assert!(error.contains(&*scripts.path().to_string_lossy()), "{error}");
}

#[tokio::test]
async fn an_error_is_read_whatever_is_missing_in_it() {
    for (said, message) in [
        (r#"{"code":7,"msg":"bad","details":null}"#, "bad (code 7: the configuration is invalid)"),
        (r#"{"code":"7","msg":"bad"}"#, "bad"),
        (r#"{"code":100,"msg":" ","details":"own words"}"#, "own words"),
        (r#"{"code":11}"#, "code 11: try again later"),
    ] {
        let scripts = Scripts::new(&[("first", &format!("echo '{said}'; exit 1"))]);
        let (plugins, list, spec) = (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}])), spec());
        let error = chain(&plugins, &list, &spec).add(None).await.unwrap_err();
        assert_eq!(error.to_string(), format!("CNI plugin first ADD: {message}"));
    }
}

#[tokio::test]
async fn a_result_without_a_version_is_of_its_configurations() {
    let old = r#"echo '{"ip4":{"ip":"10.1.2.3/16","gateway":"10.1.0.1"}}'"#;
    let new = r#"echo '{"cniVersion":"","ips":[{"address":"10.1.2.3/16"}]}'"#;
    for (version, body) in [("", old), ("0.1.0", old), ("0.2.0", old), ("0.3.1", new), ("1.1.0", new)] {
        let scripts = Scripts::new(&[("first", body), ("second", body)]);
        let list = list(version, &json!([{"type": "first"}, {"type": "second"}]));
        let (plugins, spec) = (scripts.plugins(), spec());
        let (result, reported) = chain(&plugins, &list, &spec).add(None).await.unwrap();
        assert_eq!(reported.ips, ["10.1.2.3".parse::<IpAddr>().unwrap()], "{version}");
        let version = if version.is_empty() { "0.1.0" } else { version };
        assert_eq!(result["cniVersion"], version);
        let stdin = scripts.stdin("second", "ADD");
        assert_eq!(
            (&stdin["cniVersion"], &stdin["prevResult"]["cniVersion"]),
            (&json!(version), &json!(version))
        );
    }
}

#[tokio::test]
async fn null_is_a_result_without_anything_and_another_version_is_named() {
    let scripts = Scripts::new(&[("first", "echo null")]);
    let (plugins, of_null, spec) = (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}])), spec());
    let (result, _) = chain(&plugins, &of_null, &spec).add(None).await.unwrap();
    assert_eq!(result, json!({"cniVersion": "1.0.0"}));
    let scripts = Scripts::new(&[("first", r#"echo '{"cniVersion":"3.0.0"}'"#)]);
    let plugins = scripts.plugins();
    let error = chain(&plugins, &of_null, &spec).add(None).await.unwrap_err().to_string();
    assert!(error.contains(r#"its result has the cniVersion "3.0.0""#), "{error}");
}

#[tokio::test]
async fn a_result_without_an_address_for_the_pod_is_an_error_of_the_last_plugin() {
    for forgetful in [r#"echo '{"cniVersion":"1.0.0"}'"#, "echo null", r#"echo '{"ips":[]}'"#] {
        let scripts = Scripts::new(&[("first", ETH0), ("last", forgetful)]);
        let (plugins, list, spec) =
            (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}, {"type": "last"}])), spec());
        let (_, reported) = chain(&plugins, &list, &spec).add(None).await.unwrap();
        let error = list.require_address(&reported).unwrap_err().to_string();
        let expected =
            "CNI plugin last ADD: the last result of the network's plugins has no address for the pod";
        assert_eq!(error, expected);
    }
}

#[tokio::test]
async fn del_passes_over_what_is_gone_and_over_what_a_plugin_says_on_success() {
    for body in [
        r#"echo '{"code":3,"msg":"who?"}'; exit 1"#,
        r#"echo '{"code":999,"msg":"interface eth0 not found"}'; exit 1"#,
        "echo 'Link not found' >&2; exit 2",
        "echo done",
        "echo '{}'",
    ] {
        let scripts = Scripts::new(&[("first", "true"), ("second", body)]);
        let (plugins, list, spec) =
            (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}, {"type": "second"}])), spec());
        chain(&plugins, &list, &spec).del(&Value::Null).await.unwrap();
        assert_eq!(scripts.calls(), ["DEL second", "DEL first"], "{body}");
    }
    // Without a namespace a plugin may miss its file. With one, this is a failure.
    let scripts = Scripts::new(&[("first", "echo 'open: no such file or directory' >&2; exit 1")]);
    let (plugins, list, spec) = (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}])), spec());
    let without = Chain { netns: OsString::new(), ..chain(&plugins, &list, &spec) };
    without.del(&Value::Null).await.unwrap();
    chain(&plugins, &list, &spec).del(&Value::Null).await.unwrap_err();
}

#[tokio::test]
async fn plugins_say_whether_they_could_serve_a_pod_since_they_have_a_command_for_it() {
    let down = r#"echo '{"cniVersion":"1.1.0","code":51,"msg":"no routes"}'; exit 1"#;
    let scripts = Scripts::new(&[("first", "true"), ("second", down), ("third", "true")]);
    let (plugins, chained) = (
        scripts.plugins(),
        json!([{"type": "first", "x": 1, "capabilities": {"dns": true}}, {"type": "second"}, {"type": "third"}]),
    );
    let error = list("1.1.0", &chained).status(&plugins).await.unwrap_err();
    assert!(matches!(error, NetError::Plugin { code: 51, command: "STATUS", .. }), "{error:?}");
    assert!(
        error.to_string().contains("no routes (code 51: the plugin is not available, and running pods"),
        "{error}"
    );
    assert_eq!(scripts.calls(), ["STATUS first", "STATUS second"]);
    let stdin = json!({"cniVersion": "1.1.0", "name": "net", "type": "first", "x": 1});
    assert_eq!(scripts.stdin("first", "STATUS"), stdin);
    let environment = scripts.environment("first", "STATUS");
    assert!(environment.contains("CNI_PATH=") && !environment.contains("CNI_NETNS="), "{environment}");
    list("1.0.0", &chained).status(&plugins).await.unwrap();
    assert_eq!(scripts.calls().len(), 2);
}

#[tokio::test]
async fn plugins_clean_up_after_all_attachments_but_those_in_use() {
    let scripts = Scripts::new(&[("first", "exit 1"), ("second", "true")]);
    let (plugins, chained) = (scripts.plugins(), json!([{"type": "first"}, {"type": "second"}]));
    let valid = [("p1".to_owned(), "eth0".to_owned())];
    let failures = list("1.1.0", &chained).collect(&plugins, &valid).await;
    assert_eq!(failures.len(), 1, "one that fails keeps the others from nothing");
    assert_eq!(scripts.calls(), ["GC first", "GC second"]);
    let attachments = json!([{"containerID": "p1", "ifname": "eth0"}]);
    assert_eq!(
        scripts.stdin("second", "GC"),
        json!({"cniVersion": "1.1.0", "name": "net", "type": "second",
            "cni.dev/valid-attachments": attachments, "cni.dev/attachments": attachments})
    );
    for quiet in [list("1.0.0", &chained), NetworkList { disables_gc: true, ..list("1.1.0", &chained) }] {
        assert!(quiet.collect(&plugins, &valid).await.is_empty());
    }
    assert_eq!(scripts.calls().len(), 2);
}

#[tokio::test]
async fn a_plugin_gets_what_containerd_passes_by_capabilities() {
    let scripts = Scripts::new(&[("first", ETH0)]);
    let capabilities = json!({"dns": true, "cgroupPath": true, "io.kubernetes.cri.pod-annotations": true});
    let list = list("1.0.0", &json!([{"type": "first", "capabilities": capabilities}]));
    let mut spec = spec();
    let servers = vec!["10.0.0.10".to_owned()];
    spec.dns = Some(runtime_spec::Dns { servers, ..Default::default() });
    spec.cgroup_parent = "kubepods-pod1.slice".into();
    spec.annotations = [("a".to_owned(), "b".to_owned())].into();
    chain(&scripts.plugins(), &list, &spec).add(None).await.unwrap();
    assert_eq!(
        scripts.stdin("first", "ADD")["runtimeConfig"],
        json!({
            "dns": {"servers": ["10.0.0.10"], "searches": [], "options": []},
            "cgroupPath": "kubepods-pod1.slice",
            "io.kubernetes.cri.pod-annotations": {"a": "b"},
        })
    );
}

#[tokio::test]
async fn a_plugin_whose_file_is_being_written_is_tried_again_and_not_without_end() {
    let scripts = Scripts::new(&[("first", ETH0)]);
    let (plugins, list, spec) = (scripts.plugins(), list("1.0.0", &json!([{"type": "first"}])), spec());
    let writer = fs::File::options().append(true).open(scripts.path().join("first")).unwrap();
    let error = chain(&plugins, &list, &spec).add(None).await.unwrap_err().chain();
    assert!(error.contains("busy"), "{error}");
    drop(writer);
    chain(&plugins, &list, &spec).add(None).await.unwrap();
}
