//! The server behind TLS: the same sessions, with a changing certificate.

use std::path::PathBuf;
use std::sync::Arc;

use futures::SinkExt;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use runtime_streaming::client::{self, DialError};
use runtime_streaming::{Outcome, Server, ServerError, Tls, TlsError};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::protocol::Message;

use crate::commands::{TakesNothing, Watch, stuck, until_closed, websocket_over};
use crate::hostile::is_dropped;
use crate::sessions::{ALL, Client, Echo, host};

const NAMES: [&str; 4] = ["error", "stdin", "stdout", "stderr"];

/// An authority, and the files of a server with a certificate from it.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    directory: TempDir,
}

impl Authority {
    fn new() -> Authority {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        let authority = Authority { issuer: Issuer::new(params, key), directory };
        std::fs::write(authority.file(), certificate).unwrap();
        authority
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("authority.pem")
    }

    fn tls(&self) -> Tls {
        let file = |name| self.directory.path().join(name);
        Tls { certificate: file("certificate.pem"), key: file("key.pem") }
    }

    /// Issues a new certificate for this name, with its key.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Replaces the server's files, one after the other as an operator would.
    fn install(&self, (certificate, key): &(String, String)) {
        std::fs::write(self.tls().certificate, certificate).unwrap();
        std::fs::write(self.tls().key, key).unwrap();
    }

    async fn server(&self) -> Arc<Server> {
        self.install(&self.issue("127.0.0.1"));
        Server::start("127.0.0.1:0".parse().unwrap(), Some(self.tls())).await.unwrap()
    }

    /// Returns the URL of an echoing exec.
    fn echo(&self, server: &Server) -> String {
        server.exec(ALL, Box::new(Echo(Outcome::Exited(0)))).unwrap()
    }

    async fn client(&self, url: &str) -> Client {
        Client::trusting(Some(&self.file()), url, &NAMES).await
    }

    async fn serves(&self, server: &Server) {
        let client = self.client(&self.echo(server)).await;
        client.say("stdin", "hello", true).await;
        let (said, _) = client.collect().await;
        // After the half-close of its input.
        assert_eq!((&said["stdout"][..], &said["stderr"][..]), (&b"hello"[..], &b"done"[..]));
    }

    /// Returns a connection after its handshake. The client offers these protocols.
    async fn greet(&self, url: &str, alpn: &[&[u8]]) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.file()).unwrap()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connection = TcpStream::connect(host(url)).await?;
        TlsConnector::from(Arc::new(config)).connect(name, connection).await
    }

    /// Returns whether the server shows this certificate.
    async fn shows(&self, url: &str, (certificate, _): &(String, String)) -> bool {
        let stream = self.greet(url, &[]).await.unwrap();
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
        shown == CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()
    }
}

#[tokio::test]
async fn a_command_is_carried_over_spdy_and_over_websocket() {
    let authority = Authority::new();
    let server = authority.server().await;
    assert!(authority.echo(&server).starts_with("https://127.0.0.1:"));
    authority.serves(&server).await;
    let url = authority.echo(&server);
    let connection = authority.greet(&url, &[]).await.unwrap();
    let mut socket = websocket_over(connection, &url, "v5.channel.k8s.io").await;
    for message in [&b"\0hello"[..], &[255, 0]] {
        socket.send(Message::binary(message.to_vec())).await.unwrap();
    }
    let messages = until_closed(socket).await;
    assert_eq!(messages[1..3], [b"\x01hello".to_vec(), b"\x02done".to_vec()]);
}

#[tokio::test]
async fn only_http_1_is_agreed_on() {
    let authority = Authority::new();
    let server = authority.server().await;
    let url = authority.echo(&server);
    let stream = authority.greet(&url, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    authority.greet(&url, &[b"h2"]).await.unwrap_err();
}

#[tokio::test]
async fn a_server_without_a_trusted_certificate_is_refused() {
    let authority = Authority::new();
    let server = authority.server().await;
    let stranger = Authority::new();
    for file in [None, Some(stranger.file())] {
        let error =
            client::dial(&authority.echo(&server), client::COMMAND, file.as_deref()).await.unwrap_err();
        assert!(matches!(error, DialError::Untrusted(_)), "{error:?}");
    }
    for file in [stranger.tls().certificate, PathBuf::from("/dev/null")] {
        let error = client::dial(&authority.echo(&server), client::COMMAND, Some(&file)).await.unwrap_err();
        assert!(matches!(error, DialError::Authority(_)), "{error:?}");
    }
}

#[tokio::test]
async fn plain_http_is_dropped_and_disturbs_nobody() {
    let authority = Authority::new();
    let server = authority.server().await;
    let client = authority.client(&authority.echo(&server)).await;
    let url = authority.echo(&server);
    let mut plain = TcpStream::connect(host(&url)).await.unwrap();
    plain.write_all(format!("POST {url} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    is_dropped(plain).await;
    client.say("stdin", "as ever", true).await;
    assert_eq!(client.collect().await.0["stdout"], b"as ever");
    authority.serves(&server).await;
}

#[tokio::test]
async fn handshakes_that_do_not_end_make_room_for_honest_clients() {
    let authority = Authority::new();
    let server = authority.server().await;
    let url = authority.echo(&server);
    let mut half_open = Vec::new();
    for number in 0..400 {
        let mut connection = TcpStream::connect(host(&url)).await.unwrap();
        // Nothing, or the beginning of a client's hello.
        if number % 2 == 0 {
            connection.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).await.unwrap();
        }
        half_open.push(connection);
    }
    authority.serves(&server).await;
    for connection in half_open.into_iter().take(100) {
        is_dropped(connection).await;
    }
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_the_next_client() {
    let authority = Authority::new();
    let server = authority.server().await;
    let client = authority.client(&authority.echo(&server)).await;
    let url = authority.echo(&server);
    for _ in 0..2 {
        let pair = authority.issue("127.0.0.1");
        assert!(!authority.shows(&url, &pair).await);
        authority.install(&pair);
        assert!(authority.shows(&url, &pair).await);
    }
    client.say("stdin", "as ever", true).await;
    assert_eq!(client.collect().await.0["stdout"], b"as ever");
}

#[tokio::test]
async fn an_unusable_new_certificate_leaves_the_old_one_in_use() {
    let authority = Authority::new();
    let server = authority.server().await;
    let old = authority.issue("127.0.0.1");
    authority.install(&old);
    let url = authority.echo(&server);
    assert!(authority.shows(&url, &old).await);
    let (other, other_key) = authority.issue("127.0.0.1");
    let text = |text: &str| text.to_owned();
    for bad in [
        // Of another pair: the state between the two writes of a rotation.
        (other.clone(), old.1.clone()),
        (old.0.clone(), other_key.clone()),
        (text("nonsense"), old.1.clone()),
        (old.0.clone(), text("")),
        // Clients dial the address, but these do not name it.
        authority.issue("10.0.0.1"),
        authority.issue("localhost"),
    ] {
        authority.install(&bad);
        assert!(authority.shows(&url, &old).await);
    }
    std::fs::remove_file(authority.tls().key).unwrap();
    assert!(authority.shows(&url, &old).await);
    let good = (other, other_key);
    authority.install(&good);
    assert!(authority.shows(&url, &good).await);
}

#[tokio::test]
async fn a_server_does_not_start_with_an_unusable_certificate() {
    let authority = Authority::new();
    let start = async || Server::start("127.0.0.1:0".parse().unwrap(), Some(authority.tls())).await;
    assert!(matches!(start().await, Err(ServerError::Tls(TlsError::Read { .. }))));
    authority.install(&("nonsense".to_owned(), "nonsense".to_owned()));
    assert!(matches!(start().await, Err(ServerError::Tls(TlsError::Missing { .. }))));
    authority.install(&(authority.issue("127.0.0.1").0, authority.issue("127.0.0.1").1));
    assert!(matches!(start().await, Err(ServerError::Tls(TlsError::Pair { .. }))));
    authority.install(&authority.issue("podvisor.example"));
    let error = start().await.unwrap_err();
    assert!(
        matches!(&error, ServerError::Tls(TlsError::Name { address, .. }) if address.is_loopback()),
        "{error}"
    );
}

#[tokio::test]
async fn a_client_that_closes_tls_and_keeps_the_connection_has_gone() {
    let authority = Authority::new();
    let server = authority.server().await;
    let (gone, seen) = tokio::sync::oneshot::channel();
    let url = server.exec(ALL, Box::new(Watch(gone))).unwrap();
    let connection = authority.greet(&url, &[]).await.unwrap();
    let socket = websocket_over(connection, &url, "v5.channel.k8s.io").await;
    let mut connection = socket.into_inner();
    let (tcp, tls) = connection.get_mut();
    tls.send_close_notify();
    let mut close_notify = Vec::new();
    tls.write_tls(&mut close_notify).unwrap();
    tcp.write_all(&close_notify).await.unwrap();
    seen.await.unwrap();
}

#[tokio::test]
async fn a_client_that_goes_away_is_seen_though_its_input_is_not_taken() {
    let authority = Authority::new();
    let server = authority.server().await;
    let (gone, seen) = tokio::sync::oneshot::channel();
    let url = server.exec(ALL, Box::new(TakesNothing(gone))).unwrap();
    let file = authority.file();
    // A separate runtime. Its end closes the client's connection with unsent bytes.
    let client = tokio::task::spawn_blocking(move || {
        let sending = async {
            let client = Client::trusting(Some(&file), &url, &NAMES).await;
            let piece = || vec![b'x'; 32 << 10].into();
            while let Ok(sent) = stuck(client.sender.send(client.ids["stdin"], piece(), false)).await {
                sent.unwrap();
            }
        };
        tokio::runtime::Runtime::new().unwrap().block_on(sending);
    });
    client.await.unwrap();
    seen.await.unwrap();
}
