//! Hosts as `hosts.toml` and the environment describe them, on the wire.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::node::{Node, limits};
use crate::wire::{Made, Reply, Request, Server, reply};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use runtime_image::{ImageErrorKind, RegistryConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

/// A registry unknown to every name server (RFC 6761).
const NAME: &str = "registry.invalid/t:1";

fn node_with_hosts(text: &str) -> (Node, TempDir) {
    let certs = tempfile::tempdir().unwrap();
    write_hosts(certs.path(), text);
    let config_dir = Some(certs.path().to_owned());
    (Node::with_config(RegistryConfig { config_dir, limits: limits(), ..RegistryConfig::default() }), certs)
}

fn write_hosts(certs: &Path, text: &str) {
    fs::create_dir_all(certs.join("_default")).unwrap();
    fs::write(certs.join("_default/hosts.toml"), text).unwrap();
}

/// Serves the image below a path.
fn below(path: &'static str) -> impl Fn(&Request) -> Reply {
    let made = Made::new("x", "amd64");
    move |request| match request.path.starts_with(path) {
        true => made.answer(request).unwrap_or(reply(404, "{}")),
        false => reply(404, "{}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_are_sent_and_an_overridden_path_is_used_as_it_is() {
    let server = Server::start(|_| below("/cache/hub/t/")).await;
    let text = format!(
        "[host.\"http://{}/cache/hub\"]\noverride_path = true\n[host.\"http://{0}/cache/hub\".header]\nx-key = \"secret\"\n",
        server.address
    );
    let (node, _certs) = node_with_hosts(&text);
    node.pull(NAME).await.unwrap();
    let asked = server.asked();
    assert!(asked.iter().any(|request| request.path == "/cache/hub/t/manifests/1?ns=registry.invalid"));
    assert!(asked.iter().all(|request| request.header("x-key") == Some("secret")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_keys_that_are_not_known_is_used() {
    let server = Server::start(|_| below("/v2/t/")).await;
    let (node, _certs) =
        node_with_hosts(&format!("later = 1\n[host.\"http://{}\"]\nsooner = true\n", server.address));
    node.pull(NAME).await.unwrap();
}

/// Writes an authority, a server's certificate and a client's, and returns the server's side.
fn tls(directory: &Path) -> TlsAcceptor {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    fs::write(directory.join("ca.pem"), authority.pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let issue = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    let (certificate, key) = issue("client");
    fs::write(directory.join("client.crt"), &certificate).unwrap();
    fs::write(directory.join("client.key"), &key).unwrap();
    fs::write(directory.join("both.pem"), certificate + &key).unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    let (certificate, key) = issue("127.0.0.1");
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key);
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_is_shown_to_the_host_that_wants_it() {
    let (node, certs) = node_with_hosts("");
    let acceptor = tls(&certs.path().join("_default"));
    let server = Server::start_behind(Some(acceptor), |_| below("/v2/t/")).await;
    let host = format!("[host.\"https://{}\"]\nca = \"ca.pem\"\n", server.address);
    write_hosts(certs.path(), &host);
    assert_eq!(node.pull(NAME).await.unwrap_err().kind(), ImageErrorKind::Unavailable);
    for client in ["[[\"client.crt\", \"client.key\"]]", "\"both.pem\"", "[[\"both.pem\", \"\"]]"] {
        write_hosts(certs.path(), &format!("{host}client = {client}\n"));
        let image = node.pull(NAME).await.unwrap();
        node.images.remove(&image.id).unwrap();
    }
    write_hosts(certs.path(), &format!("{host}client = \"client.crt\"\n"));
    let message = node.pull(NAME).await.unwrap_err().to_string();
    assert!(message.contains("hosts.toml: host") && message.contains("`client`"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_on_loopback_with_certificates_is_used_over_tls() {
    let certs = tempfile::tempdir().unwrap();
    let made = certs.path().join("made");
    fs::create_dir(&made).unwrap();
    let acceptor = tls(&made);
    let server = Server::start_behind(Some(acceptor), |_| below("/v2/t/")).await;
    let own = certs.path().join(&server.address);
    fs::rename(&made, &own).unwrap();
    // Docker's form of both.
    fs::rename(own.join("client.crt"), own.join("client.cert")).unwrap();
    fs::rename(own.join("ca.pem"), own.join("ca.crt")).unwrap();
    let config_dir = Some(certs.path().to_owned());
    let config = RegistryConfig { config_dir, limits: limits(), ..RegistryConfig::default() };
    let node = Node::with_config(config.clone());
    let reference = format!("{}/t:1", server.address);
    node.pull(&reference).await.unwrap();
    // The operator's word for plain HTTP counts more.
    node.images.set_registries(RegistryConfig { insecure: vec![server.address.clone()], ..config });
    assert_eq!(node.pull(&reference).await.unwrap_err().kind(), ImageErrorKind::Unavailable);
}

/// Names the proxy to [`a_proxy_of_the_environment_is_used_but_for_loopback`] when it starts itself.
const PROXY: &str = "PODVISOR_TEST_PROXY";

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_of_the_environment_is_used_but_for_loopback() {
    if std::env::var_os(PROXY).is_some() {
        let insecure = vec!["registry.invalid".to_owned()];
        let node =
            Node::with_config(RegistryConfig { insecure, limits: limits(), ..RegistryConfig::default() });
        node.pull(NAME).await.unwrap();
        let direct = Server::start(|_| below("/v2/t/")).await;
        node.pull(&format!("{}/t:1", direct.address)).await.unwrap();
        return;
    }
    let proxy = Server::start(|_| below("http://registry.invalid/v2/t/")).await;
    again_behind(&proxy, "a_proxy_of_the_environment_is_used_but_for_loopback", "").await;
    assert!(!proxy.paths().is_empty());
    assert!(proxy.paths().iter().all(|path| path.starts_with("http://registry.invalid/")));
}

/// Runs a test again, behind a proxy for all but `direct`. The environment of this process cannot be changed
/// safely, but a child's can.
async fn again_behind(proxy: &Server, test: &str, direct: &str) {
    let address = format!("http://{}", proxy.address);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &format!("hosts::{test}")]).env(PROXY, "1");
    child.env("HTTP_PROXY", &address).env("http_proxy", &address);
    child.env("NO_PROXY", direct).env("no_proxy", direct);
    let output = tokio::task::spawn_blocking(move || child.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_with_its_port_and_all_names_below_another_are_asked_without_the_proxy() {
    if std::env::var_os(PROXY).is_some() {
        let insecure = vec!["registry.invalid".to_owned()];
        let node =
            Node::with_config(RegistryConfig { insecure, limits: limits(), ..RegistryConfig::default() });
        assert_eq!(node.pull(NAME).await.unwrap_err().kind(), ImageErrorKind::Unavailable);
        return;
    }
    for direct in ["other,registry.invalid:80", "*.invalid"] {
        let proxy = Server::start(|_| below("http://registry.invalid/v2/t/")).await;
        let test = "a_name_with_its_port_and_all_names_below_another_are_asked_without_the_proxy";
        again_behind(&proxy, test, direct).await;
        assert_eq!(proxy.paths(), [""; 0], "{direct}");
    }
}
