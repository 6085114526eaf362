//! The certificates of hosts, and the authorities of the node's system, on the wire.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::node::{Node, limits};
use crate::wire::{Made, Request, Server, reply};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use runtime_image::{ImageErrorKind, RegistryConfig};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

/// Makes a server's certificate as OpenSSL does without further options: its own issuer, and of an authority.
fn self_signed(name: &str) -> (String, TlsAcceptor) {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    (certificate.pem(), TlsAcceptor::from(Arc::new(config)))
}

async fn server(tls: Option<TlsAcceptor>) -> Server {
    Server::start_behind(tls, |_| {
        let made = Made::new("x", "amd64");
        move |request: &Request| made.answer(request).unwrap_or(reply(200, "{}"))
    })
    .await
}

/// A node that has this certificate for the registry in Docker's form.
fn node_with(registry: &str, certificate: &str) -> (Node, TempDir) {
    let certs = tempfile::tempdir().unwrap();
    write(&certs.path().join(registry), "ca.crt", certificate);
    let config_dir = Some(certs.path().to_owned());
    (Node::with_config(RegistryConfig { config_dir, limits: limits(), ..RegistryConfig::default() }), certs)
}

fn write(directory: &Path, file: &str, content: &str) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join(file), content).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_may_show_the_very_certificate_that_the_operator_has_for_it() {
    let (certificate, tls) = self_signed("127.0.0.1");
    let server = server(Some(tls)).await;
    let reference = format!("{}/t:1", server.address);
    let (node, _certs) = node_with(&server.address, &certificate);
    node.pull(&reference).await.unwrap();
    let (other, _) = self_signed("127.0.0.1");
    let (node, _certs) = node_with(&server.address, &other);
    assert_eq!(node.pull(&reference).await.unwrap_err().kind(), ImageErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_may_not_show_a_trusted_certificate_of_another_name() {
    let (certificate, tls) = self_signed("127.0.0.2");
    let server = server(Some(tls)).await;
    let (node, _certs) = node_with(&server.address, &certificate);
    let refused = node.pull(&format!("{}/t:1", server.address)).await.unwrap_err();
    assert_eq!(refused.kind(), ImageErrorKind::Unavailable);
}

/// Set in the process that [`a_system_without_authorities_reaches_what_does_not_need_them`] starts.
const ALONE: &str = "PODVISOR_TEST_WITHOUT_AUTHORITIES";

#[tokio::test(flavor = "multi_thread")]
async fn a_system_without_authorities_reaches_what_does_not_need_them() {
    if std::env::var_os(ALONE).is_none() {
        // The environment of this process cannot be changed safely, but a child's can.
        let empty = tempfile::tempdir().unwrap();
        write(empty.path(), "none.pem", "");
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "trust::a_system_without_authorities_reaches_what_does_not_need_them"]);
        child.env(ALONE, "1").env("SSL_CERT_DIR", empty.path().join("no"));
        child.env("SSL_CERT_FILE", empty.path().join("none.pem"));
        let output = tokio::task::spawn_blocking(move || child.output()).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let plain = server(None).await;
    Node::with_limits(limits()).pull(&format!("{}/t:1", plain.address)).await.unwrap();
    // The registry itself comes after the mirror.
    let (certificate, tls) = self_signed("127.0.0.1");
    let mirror = server(Some(tls)).await;
    let (node, certs) = node_with("registry.invalid", &certificate);
    let hosts = format!("[host.\"https://{}\"]\nca = \"ca.crt\"\n", mirror.address);
    write(&certs.path().join("registry.invalid"), "hosts.toml", &hosts);
    node.pull("registry.invalid/t:1").await.unwrap();
    let (_, tls) = self_signed("127.0.0.1");
    let unknown = server(Some(tls)).await;
    let hosts = format!("server = \"https://{}\"\n", unknown.address);
    write(&certs.path().join("registry.invalid"), "hosts.toml", &hosts);
    let refused = node.pull("registry.invalid/t:2").await.unwrap_err();
    assert_eq!(refused.kind(), ImageErrorKind::Unavailable);
    let shown = format!("{refused:?}");
    assert!(shown.contains("the system has no certificates of authorities"), "{shown}");
}
