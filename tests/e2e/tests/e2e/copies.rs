//! `podvisor cp` between this host and a container, also with a container that lies.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Output, Stdio};

use tests_e2e::Host;
use tests_registry::Layer;
use tokio::io::AsyncWriteExt as _;

/// Standard output of a command that succeeds.
async fn done(host: &Host, arguments: &[&str]) -> String {
    let output = host.podvisor(arguments).output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", error(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// What a command that fails says.
async fn refused(host: &Host, arguments: &[&str]) -> String {
    let output = host.podvisor(arguments).output().await.unwrap();
    assert_eq!(output.status.code(), Some(125), "{arguments:?}: {}", error(&output));
    error(&output)
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn files_are_copied_in_and_out_and_a_container_that_lies_writes_nothing() {
    let Some(host) = Host::start().await else { return };
    done(&host, &["run", "-d", "--name", "box", &host.busybox(), "sleep", "1000"]).await;
    goes_in(&host).await;
    comes_out(&host).await;
    streams(&host).await;
    lies(&host).await;
    done(&host, &["rm", "--force", "box"]).await;
    host.stop().await.unwrap();
}

async fn goes_in(host: &Host) {
    let site = host.dir().join("site");
    fs::create_dir_all(site.join("sub")).unwrap();
    fs::write(site.join("sub/page"), "text").unwrap();
    fs::set_permissions(site.join("sub/page"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("sub/page", site.join("link")).unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(host.dir().join("large"), &large).unwrap();
    for (source, destination) in
        [("site", "box:/srv"), ("site", "box:/tmp"), ("site/.", "box:/tmp"), ("large", "box:/tmp/other")]
    {
        done(host, &["cp", source, destination]).await;
    }
    let script = "cat /srv/sub/page /tmp/site/sub/page /tmp/sub/page; readlink /srv/link; \
                  stat -c '%a %u %s' /srv/sub/page /tmp/other";
    let seen = done(host, &["exec", "box", "sh", "-c", script]).await;
    assert_eq!(seen, "texttexttextsub/page\n640 0 4\n644 0 3000000\n");
    for (source, destination, expected) in [
        ("site", "box:/tmp/other", "/tmp/other in the container is a file, and site is a directory"),
        (
            "large",
            "box:/no/such",
            "tar in the container ended with code 1: tar: can't change directory to '/no'",
        ),
        ("large", "box:/new/", "/new in the container is no directory"),
        ("none", "box:/tmp", "none: No such file"),
        ("large", "bax:/tmp", "no pod and no container has the id or the name \"bax\""),
        ("large", "site", "neither large nor site names a container"),
    ] {
        let said = refused(host, &["cp", source, destination]).await;
        assert!(said.contains(expected), "{source} {destination}: {said}");
    }
}

async fn comes_out(host: &Host) {
    fs::create_dir(host.dir().join("here")).unwrap();
    for (source, destination) in
        [("box:/srv", "new"), ("box:/srv", "here"), ("box:srv/.", "here"), ("box:/tmp/other", "named")]
    {
        done(host, &["cp", source, destination]).await;
    }
    for page in ["new/sub/page", "here/srv/sub/page", "here/sub/page"] {
        assert_eq!(fs::read_to_string(host.dir().join(page)).unwrap(), "text", "{page}");
    }
    let read = |name: &str| fs::read(host.dir().join(name)).unwrap();
    assert!(read("named") == read("large"));
    for (source, destination, expected) in [
        ("box:/srv", "named", "named is a file, and /srv is a directory"),
        ("box:/none", "here", "tar in the container ended with code 1"),
        ("box:/srv", "no/such", "no/such: No such file"),
    ] {
        let said = refused(host, &["cp", source, destination]).await;
        assert!(said.contains(expected), "{source} {destination}: {said}");
    }
}

/// Archives as they are, from and to a pipe.
async fn streams(host: &Host) {
    let archive = Layer::builder().file("piped", 0o600, "piped").into_tar();
    let mut copying = host.podvisor(&["cp", "-", "box:/tmp"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = copying.stdin.take().unwrap();
    stdin.write_all(&archive).await.unwrap();
    drop(stdin);
    assert!(copying.wait().await.unwrap().success());
    let output = host.podvisor(&["cp", "box:/tmp/piped", "-"]).output().await.unwrap();
    assert!(
        output.stdout.starts_with(b"./piped\0") || output.stdout.starts_with(b"piped\0"),
        "{}",
        error(&output)
    );
}

/// The container's own `tar` sends what nobody asked for.
async fn lies(host: &Host) {
    let away = host.dir().join("away");
    fs::create_dir(&away).unwrap();
    let liar = "mkdir -p /usr/local/bin; printf '#!/bin/sh\ncat /lie\n' > /usr/local/bin/tar; chmod +x /usr/local/bin/tar";
    for (lie, expected) in [
        (Layer::builder().file(".bashrc", 0o644, "x"), "sent .bashrc, and this was not asked for"),
        (
            Layer::builder().symlink("srv", away.to_str().unwrap()).file("srv/x", 0o644, "x"),
            "srv here is a link or a file, no directory",
        ),
    ] {
        fs::write(host.dir().join("lie"), lie.into_tar()).unwrap();
        done(host, &["cp", "lie", "box:/lie"]).await;
        done(host, &["exec", "box", "sh", "-c", liar]).await;
        fs::create_dir(host.dir().join("caught")).unwrap();
        let said = refused(host, &["cp", "box:/srv", "caught"]).await;
        assert!(said.contains(expected), "{said}");
        assert!(fs::read_dir(&away).unwrap().count() == 0 && !host.dir().join("caught/.bashrc").exists());
        fs::remove_dir_all(host.dir().join("caught")).unwrap();
        done(host, &["exec", "box", "rm", "/usr/local/bin/tar"]).await;
    }
}
