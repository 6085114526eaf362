//! Names in all valid forms, and invalid ones.

use super::*;

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn tag(name: &str) -> Option<String> {
    Name::parse(name).unwrap().repo_tag()
}

#[test]
fn short_names_get_docker_hub_and_latest() {
    assert_eq!(tag("busybox").as_deref(), Some("docker.io/library/busybox:latest"));
    assert_eq!(tag("me/tool:2").as_deref(), Some("docker.io/me/tool:2"));
    assert_eq!(tag("localhost:5000/a/b").as_deref(), Some("localhost:5000/a/b:latest"));
    assert_eq!(tag("registry.k8s.io/pause:3.10").as_deref(), Some("registry.k8s.io/pause:3.10"));
}

#[test]
fn a_digest_wins_over_a_tag() {
    let name = Name::parse(&format!("host.example/a:1@{DIGEST}")).unwrap();
    assert_eq!(name.repo_tag(), None);
    assert_eq!(name.whole(), format!("host.example/a@{DIGEST}"));
}

#[test]
fn nonsense_is_refused_with_the_name_in_the_message() {
    let error = Name::parse("Not A Name").unwrap_err().to_string();
    assert!(error.contains("Not A Name"), "{error}");
    assert!(Name::parse("").is_err());
    assert!(Name::parse("a@sha256:12").is_err());
}

#[test]
fn ids_may_be_whole_bare_or_short() {
    let other = format!("sha512:0123456789abc{}", "0".repeat(115));
    for (name, of_it, of_other) in [
        (DIGEST, true, false),
        (&DIGEST[7..], true, false),
        ("0123456789abc", true, true),
        ("sha256:0", true, false),
        (&other, false, true),
        (&other[7..], false, true),
        ("sha512:01", false, true),
        ("sha384:01", false, false),
    ] {
        let prefix = id_prefix(name).unwrap();
        assert_eq!((prefix.is_of(DIGEST), prefix.is_of(&other)), (of_it, of_other), "{name}");
    }
    assert_eq!(id_prefix("beef"), None);
    assert_eq!(id_prefix("busybox"), None);
}

#[test]
fn every_form_of_a_name_has_its_normal_form() {
    let both = format!("host:5000/a:1@{DIGEST}");
    let digest = format!("[::1]/a/b@{DIGEST}");
    for (name, normal) in [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1.36_x-y.Z", "docker.io/library/busybox:1.36_x-y.Z"),
        ("docker.io/busybox", "docker.io/library/busybox:latest"),
        ("index.docker.io/a/b", "docker.io/a/b:latest"),
        ("index.docker.io/b:1", "docker.io/library/b:1"),
        ("me/tool", "docker.io/me/tool:latest"),
        ("library/a/b", "docker.io/library/a/b:latest"),
        ("localhost/a", "localhost/a:latest"),
        ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
        ("test.com:5000", "docker.io/library/test.com:5000"),
        ("HOST/a", "HOST/a:latest"),
        ("Host.Example/a", "Host.Example/a:latest"),
        ("host:5000/a", "host:5000/a:latest"),
        ("127.0.0.1:5000/a", "127.0.0.1:5000/a:latest"),
        ("[::1]:5000/a", "[::1]:5000/a:latest"),
        ("[2001:DB8::1]/a:1", "[2001:DB8::1]/a:1"),
        ("xn--n3h.com/a", "xn--n3h.com/a:latest"),
        ("r.io/a__b/c---d/e.f_g", "r.io/a__b/c---d/e.f_g:latest"),
        (&both, &format!("host:5000/a@{DIGEST}")),
        (&digest, &digest),
    ] {
        assert_eq!(reference(name).map(|reference| reference.whole()).as_deref(), Ok(normal), "{name}");
    }
}

#[test]
fn the_part_that_is_wrong_is_named() {
    let long = format!("r.io/{}", "a".repeat(256));
    let tag = format!("a:{}", "1".repeat(129));
    let upper = format!("a@{}", DIGEST.to_uppercase());
    let other = format!("a@sha512:{}", "0".repeat(64));
    for (name, words) in [
        ("", "its repository \"\" must be parts"),
        ("Busybox", "its repository \"Busybox\" must be in lower case"),
        ("r.io/A", "its repository \"A\" must be in lower case"),
        ("a//b", "its repository \"a//b\" must be parts"),
        ("a/", "its repository \"a/\" must be parts"),
        ("/a", "its repository \"/a\" must be parts"),
        ("r.io/a..b", "its repository"),
        ("r.io/a___b", "its repository"),
        ("r.io/a_", "its repository"),
        ("r.io/../b", "its repository"),
        ("a b", "its repository"),
        ("é", "its repository"),
        ("https://r.io/a", "its registry \"https:\""),
        ("r.io:/a", "its registry \"r.io:\""),
        ("r.io:x/a", "its registry"),
        ("-r.io/a", "its registry"),
        ("r..io/a", "its registry"),
        ("::1/a", "its registry \"::1\""),
        ("[::1/a", "its registry"),
        ("[fe80::1%eth0]/a", "its registry"),
        ("[]/a", "its repository"),
        ("a:", "its tag \"\""),
        ("a:-1", "its tag \"-1\""),
        ("a:é", "its tag"),
        ("a:1:2", "its tag \"1:2\""),
        (&tag, "its tag"),
        ("a@", "its digest \"\""),
        ("a@sha256:12", "its digest \"sha256:12\""),
        (&upper, "its digest"),
        (&other, "its digest \"sha512:"),
        (&DIGEST[7..], "it is the id of an image"),
        (DIGEST, "it is the id of an image"),
        (&long, "its repository has 256 letters"),
    ] {
        let wrong = reference(name).unwrap_err();
        assert!(wrong.starts_with(words), "{name}: {wrong}");
    }
}
