//! Exec and port-forward with a daemon serving streams by TLS.

use std::process::Stdio;

use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tests_e2e::{Host, spec};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::sessions::podvisor;

#[tokio::test]
async fn streams_served_by_tls_reach_those_who_trust_the_certificate() {
    let Some(mut host) = Host::start().await else { return };
    let file = |name: &str| host.dir().join(name);
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    std::fs::write(file("authority.pem"), authority.pem()).unwrap();
    std::fs::write(file("streaming.pem"), certificate.pem()).unwrap();
    std::fs::write(file("streaming.key"), key.serialize_pem()).unwrap();
    let config = std::fs::read_to_string(host.daemon.config()).unwrap();
    let (pem, key) = (file("streaming.pem"), file("streaming.key"));
    let config = format!("{config}[streaming]\ncertificate = {pem:?}\nkey = {key:?}\n");
    std::fs::write(host.daemon.config(), config).unwrap();
    let authority = file("authority.pem").display().to_string();
    host.daemon.kill_and_restart().await.unwrap();

    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("tls", host.dir())).await.unwrap();
    let line = "echo forwarded > /file; httpd -p 127.0.0.1:8080 -h /; sleep 1000";
    let id = client.run(&pod, spec::shell("web", &image, line)).await.unwrap();
    client.sh(&id, "until wget -q -O /dev/null http://127.0.0.1:8080/file; do :; done").await.unwrap();

    let output = podvisor(&host, &["exec", &id, "true"]).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(125) && said.contains("--streaming-ca"), "{output:?}");
    let exec = ["exec", "--streaming-ca", &authority, &id, "sh", "-c", "echo out; exit 4"];
    let output = podvisor(&host, &exec).output().await.unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(4), &b"out\n"[..]), "{output:?}");

    let mut command = podvisor(&host, &["port-forward", &pod, "0:8080"]);
    command.env("PODVISOR_STREAMING_CA", &authority).stdout(Stdio::piped());
    let mut forward = command.spawn().unwrap();
    let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    let mut connection = TcpStream::connect(line.split_whitespace().nth(1).unwrap()).await.unwrap();
    connection.write_all(b"GET /file HTTP/1.0\r\n\r\n").await.unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).await.unwrap();
    assert!(text.ends_with("\r\n\r\nforwarded\n"), "{text}");
    forward.kill().await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
