//! Hosts read from files as operators write them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use super::*;

fn parsed(text: &str) -> Result<Vec<Host>, String> {
    parse(Path::new("/nowhere"), "registry.k8s.io", text, &mut Vec::new())
}

fn refused(text: &str) -> String {
    parsed(text).unwrap_err()
}

#[test]
fn hosts_are_asked_in_the_order_of_the_file_and_the_upstream_last() {
    let hosts = parsed(
        "server = \"https://upstream.example\"\n[host.\"http://z.example:5000\"]\n\
         [host.\"https://a.example\"]\ncapabilities = [\"pull\"]\nskip_verify = true\n",
    )
    .unwrap();
    let seen: Vec<_> =
        hosts.iter().map(|host| (host.address.as_deref(), host.plain, host.resolves)).collect();
    assert_eq!(
        seen,
        [
            (Some("z.example:5000"), Some(true), true),
            (Some("a.example"), Some(false), false),
            (Some("upstream.example"), Some(false), true),
        ]
    );
    assert_eq!(hosts.iter().map(|host| host.skip_verify).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(hosts.iter().map(|host| host.upstream).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn without_a_server_the_registry_itself_comes_last() {
    let hosts = parsed("[host.\"http://127.0.0.1:5000\"]\n").unwrap();
    assert_eq!(hosts.len(), 2);
    assert_eq!(hosts[1], Host::upstream());
    assert_eq!(hosts[0].name("registry.k8s.io"), "127.0.0.1:5000");
    assert_eq!(hosts[1].name("registry.k8s.io"), "registry.k8s.io");
    assert_eq!(parsed("").unwrap(), [Host::upstream()]);
}

#[test]
fn a_mirror_that_is_the_registry_gets_its_credentials_and_a_server_is_not_asked_twice() {
    let hosts = parsed(
        "server = \"https://m.example\"\n[host.\"https://m.example\"]\n[host.\"https://registry.k8s.io/cache\"]\n",
    )
    .unwrap();
    let seen: Vec<_> = hosts.iter().map(|host| (host.address.as_deref().unwrap(), host.upstream)).collect();
    assert_eq!(seen, [("m.example", true), ("registry.k8s.io/cache", true)]);
}

#[test]
fn a_registry_has_its_credentials_by_each_of_its_names() {
    let of = |registry: &str, host: &str| {
        let text = format!("server = \"https://other.example\"\n[host.\"{host}\"]\n");
        parse(Path::new("/nowhere"), registry, &text, &mut Vec::new()).unwrap()[0].upstream
    };
    for (registry, host) in [
        ("docker.io", "https://registry-1.docker.io"),
        ("docker.io", "https://index.docker.io/v2"),
        ("lab.example", "https://LAB.example:443"),
        ("lab.example:80", "http://lab.example"),
        ("lab.example:5000", "http://lab.example:5000"),
    ] {
        assert!(of(registry, host), "{registry} is {host}");
    }
    for (registry, host) in [
        ("docker.io", "https://mirror.docker.io"),
        ("docker.io", "https://registry-1.docker.io.example"),
        ("lab.example", "https://lab.example:8443"),
        ("lab.example", "https://lab.example:80"),
        ("quay.io", "https://registry-1.docker.io"),
    ] {
        assert!(!of(registry, host), "{registry} is not {host}");
    }
}

#[test]
fn a_directory_with_certificates_alone_is_in_dockers_form() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("_default/hosts.toml", "[host.\"http://any\"]\n");
    write("lab.example/ca.crt", "-----BEGIN CERTIFICATE-----\n");
    write("lab.example/notes.txt", "none");
    let hosts = read(Some(root.path()), "lab.example").unwrap();
    assert_eq!((hosts.len(), hosts[0].address.as_deref(), hosts[0].roots.len()), (1, None, 1));
    assert!(hosts[0].upstream, "the default's mirrors are not asked");
    write("lab.example/client.cert", "-----BEGIN CERTIFICATE-----\n");
    let refused = read(Some(root.path()), "lab.example").unwrap_err().to_string();
    assert!(refused.contains("client.key"), "{refused}");
    write("lab.example/other.cert", "");
    let refused = read(Some(root.path()), "lab.example").unwrap_err().to_string();
    assert!(refused.contains("2 client certificates"), "{refused}");
}

#[test]
fn paths_stand_before_the_api_or_hold_it_themselves() {
    let cases = [
        ("http://h", false, "h/v2", ""),
        ("http://h/", false, "h/v2", ""),
        ("http://h/v2", false, "h/v2", ""),
        ("http://h/some/where", false, "h/some/where/v2", ""),
        ("http://h/v2", true, "h/v2", ""),
        ("http://h/x/v2/proxy/hub/", true, "h/x/v2", "proxy/hub/"),
        ("http://h/proxy/hub", true, "h/proxy/hub", ""),
    ];
    for (address, override_path, base, prefix) in cases {
        let text = format!("[host.\"{address}\"]\noverride_path = {override_path}\n");
        let host = parsed(&text).unwrap().remove(0);
        let shown = host.address.unwrap() + host.api;
        assert_eq!((shown.as_str(), host.prefix.as_str()), (base, prefix), "{address}");
    }
}

#[test]
fn an_address_without_a_scheme_is_https_but_on_loopback() {
    for (address, plain) in [
        ("h.example:5000", false),
        ("localhost:5000", true),
        ("127.0.0.9", true),
        ("[::1]:5000", true),
        ("10.0.0.1", false),
    ] {
        let host = parsed(&format!("[host.\"{address}\"]\n")).unwrap().remove(0);
        assert_eq!((host.plain, host.address.as_deref()), (Some(plain), Some(address)), "{address}");
    }
}

#[test]
fn what_cannot_be_used_is_refused_by_name() {
    for (text, named) in [
        ("[host.\"http://h\"]\nclient = [\"a.pem\"]\n", "/nowhere/a.pem"),
        ("[host.\"http://h\"]\nclient = [\"a.pem\", \"b.pem\"]\n", "`client` has 2 certificates"),
        ("[host.\"http://h\".header]\n\"x key\" = \"1\"\n", "`header` \"x key\""),
        ("[host.\"http://h\".header]\nx-key = \"a\\nb\"\n", "`header` \"x-key\""),
        ("[host.\"http://h\"]\ncapabilities = [1]\n", "capability 1"),
        ("[host.\"http://h\"]\ndial_timeout = \"soon\"\n", "`dial_timeout` \"soon\""),
        ("[host.\"http://h\"]\nskip_verify = \"no\"\n", "skip_verify"),
        ("override_path = true\n", "`override_path`"),
        ("[host.\"ftp://h\"]\n", "ftp"),
        ("[host.\"http://me:pw@h\"]\n", "user"),
        ("[host.\"http://h?x=1\"]\n", "query"),
        ("[host.\"http://h\"]\nca = \"gone.pem\"\n", "/nowhere/gone.pem"),
        ("host = 1\n", "`host`"),
        ("server = 1\n", "`server`"),
        ("not toml", "line 1"),
    ] {
        let message = refused(text);
        assert!(message.contains(named), "{text:?}: {message}");
        assert!(!text.starts_with("[host") || message.contains("host \""), "{message}");
    }
    let many: String = (0..=HOSTS_MAX).map(|n| format!("[host.\"http://h{n}\"]\n")).collect();
    assert!(refused(&many).contains("17 hosts"));
}

#[test]
fn a_registry_has_its_directory_or_the_default_one() {
    let root = tempfile::tempdir().unwrap();
    let write = |directory: &str, host: &str| {
        fs::create_dir_all(root.path().join(directory)).unwrap();
        fs::write(root.path().join(directory).join(FILE), format!("[host.\"http://{host}\"]\n")).unwrap();
    };
    let first = |registry: &str| {
        let hosts = read(Some(root.path()), registry).unwrap();
        hosts[0].address.clone()
    };
    assert_eq!(first("docker.io"), None);
    write("_default", "any");
    write("docker.io", "hub");
    write("lab.example:5000", "colon");
    assert_eq!(first("docker.io").as_deref(), Some("hub"));
    assert_eq!(first("quay.io").as_deref(), Some("any"));
    assert_eq!(first("lab.example:5000").as_deref(), Some("colon"));
    write("lab.example_5000_", "underscores");
    assert_eq!(first("lab.example:5000").as_deref(), Some("underscores"));
    assert_eq!(read(None, "quay.io").unwrap(), [Host::upstream()]);
    fs::write(root.path().join("docker.io/hosts.toml"), "nonsense\n").unwrap();
    let message = read(Some(root.path()), "docker.io").unwrap_err().to_string();
    assert!(message.contains("docker.io/hosts.toml") && message.contains("nonsense"), "{message}");
}

#[test]
fn a_ca_file_is_read_beside_the_hosts_file() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    fs::write(root.path().join("empty.pem"), "").unwrap();
    let read = |ca: &str| parse(root.path(), "r", &format!("ca = {ca}\n"), &mut Vec::new());
    assert_eq!(read("[\"a.pem\", \"a.pem\"]").unwrap()[0].roots.len(), 2);
    assert_eq!(read("\"a.pem\"").unwrap()[0].roots.len(), 1);
    assert!(read("\"empty.pem\"").unwrap_err().contains("empty.pem"));
}

#[test]
fn what_is_not_known_is_passed_over_and_named() {
    let mut unknown = Vec::new();
    let text =
        "mirrors = []\n[host.\"http://h\"]\nrewrite = 1\ncapabilities = [\"Pull\", \"push\", \"dance\"]\n";
    let hosts = parse(Path::new("/nowhere"), "r", text, &mut unknown).unwrap();
    assert_eq!(unknown, ["`rewrite`", "capability \"dance\"", "`mirrors`"]);
    assert!(hosts[0].pulls && !hosts[0].resolves);
}

#[test]
fn headers_and_the_time_to_connect_are_read() {
    let text = "[host.\"http://h\"]\ndial_timeout = \"1m30s\"\n[host.\"http://h\".header]\nx-one = \"1\"\nx-two = [\"2\", \"3\"]\n";
    let host = parsed(text).unwrap().remove(0);
    assert_eq!(host.connect, Some(Duration::from_secs(90)));
    let values = |name: &str| host.headers.get_all(name).iter().cloned().collect::<Vec<_>>();
    assert_eq!(
        (values("x-one"), values("x-two")),
        (vec!["1".parse().unwrap()], vec!["2".parse().unwrap(), "3".parse().unwrap()])
    );
}
