//! A registry with bodies that do not end, or grow when they are decoded: raw HTTP, byte by byte.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::node::{Node, content, limits};
use crate::wire::read_head;
use flate2::Compression;
use flate2::write::GzEncoder;
use runtime_image::{ContentError, ImageError, Limits};
use serde_json::json;
use tests_registry::digest_of;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// More unread bytes than sockets hold.
const SOCKETS_BYTES: u64 = 64 << 20;

/// The body of an answer.
#[derive(Clone)]
enum Body {
    Whole(Vec<u8>),
    /// Endless pieces. The header may announce a length, but nothing keeps to it.
    Endless,
    /// A beginning, and then silence.
    Silent,
}

#[derive(Clone)]
struct Answer {
    path: &'static str,
    status: &'static str,
    headers: String,
    body: Body,
}

fn answer(path: &'static str, status: &'static str, headers: &str, body: Body) -> Answer {
    Answer { path, status, headers: headers.to_owned(), body }
}

/// Chunks without end, and without a length.
fn endless(path: &'static str, status: &'static str) -> Answer {
    answer(path, status, "transfer-encoding: chunked\r\n", Body::Endless)
}

struct Fake {
    address: String,
    /// Bytes of sent bodies.
    sent: Arc<AtomicU64>,
}

impl Fake {
    async fn start(answers: impl FnOnce(&str) -> Vec<Answer>) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (answers, sent) = (Arc::new(answers(&address)), Arc::<AtomicU64>::default());
        let count = sent.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answers.clone(), count.clone()));
            }
        });
        Fake { address, sent }
    }

    fn reference(&self) -> String {
        format!("{}/t:1", self.address)
    }

    /// Asserts that the client has hung up and does not read on.
    fn assert_bounded(&self) {
        let sent = self.sent.load(Ordering::SeqCst);
        assert!(sent < SOCKETS_BYTES, "{sent} bytes were taken");
    }
}

async fn serve(mut stream: TcpStream, answers: Arc<Vec<Answer>>, sent: Arc<AtomicU64>) {
    let Some(head) = read_head(&mut stream).await else { return };
    // With a trailing space. An answer can use it to match the whole path.
    let path = format!("{} ", head.split(' ').nth(1).unwrap_or_default());
    let known = answers.iter().find(|answer| path.starts_with(answer.path)).cloned();
    let empty = answer("", "200 OK", "content-length: 0\r\n", Body::Whole(Vec::new()));
    let answer = known.unwrap_or(empty);
    let head = format!("HTTP/1.1 {}\r\n{}connection: close\r\n\r\n", answer.status, answer.headers);
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    match answer.body {
        Body::Whole(bytes) => drop(stream.write_all(&bytes).await),
        Body::Silent => {
            let _ = stream.write_all(b"1\r\n{\r\n").await;
            // Until the client hangs up.
            let _ = stream.read_u8().await;
        }
        Body::Endless => {
            let piece = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
            while stream.write_all(&piece).await.is_ok() {
                if sent.fetch_add(0x10000, Ordering::SeqCst) > SOCKETS_BYTES {
                    return;
                }
            }
        }
    }
    let _ = stream.shutdown().await;
}

fn challenge(address: &str) -> Answer {
    challenge_at("/v2/ ", address)
}

fn challenge_at(path: &'static str, address: &str) -> Answer {
    let header = format!(
        "www-authenticate: Bearer realm=\"http://{address}/token\",service=\"s\"\r\ncontent-length: 0\r\n"
    );
    answer(path, "401 Unauthorized", &header, Body::Whole(Vec::new()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_manifest_is_read_to_its_bound() {
    let length = "content-length: 4611686018427387904\r\n";
    for manifest in
        [endless("/v2/t/manifests/1", "200 OK"), answer("/v2/t/manifests/1", "200 OK", length, Body::Endless)]
    {
        let fake = Fake::start(|_| vec![manifest]).await;
        let (what, wrong) = content(Node::new().pull(&fake.reference()).await);
        assert!(what.starts_with("manifest "), "{what}");
        assert!(matches!(wrong, ContentError::Limit { unit: "bytes", limit: 4_194_304, .. }), "{wrong:?}");
        fake.assert_bounded();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_token_is_read_to_its_bound() {
    let fake = Fake::start(|address| vec![challenge(address), endless("/token", "200 OK")]).await;
    let (what, wrong) = content(Node::new().pull(&fake.reference()).await);
    assert_eq!(what, "access to t");
    assert!(matches!(wrong, ContentError::Limit { unit: "bytes", limit: 262_144, .. }), "{wrong:?}");
    fake.assert_bounded();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_blob_is_read_to_the_size_that_its_descriptor_gives() {
    const SIZE: usize = 1 << 20;
    let config = |diff_id: &str| {
        format!(r#"{{"os":"linux","architecture":"amd64","rootfs":{{"diff_ids":["{diff_id}"]}}}}"#)
    };
    let (digest, config) = (digest_of(b"never sent"), config(&digest_of(b"nor this")));
    let manifest = json!({
        "schemaVersion": 2,
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest_of(config.as_bytes()), "size": config.len() },
        "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": SIZE }],
    });
    let (manifest, at) = (manifest.to_string(), |path: String| -> &'static str { path.leak() });
    let whole = |path, text: &str| {
        let length = format!("content-length: {}\r\n", text.len());
        answer(path, "200 OK", &length, Body::Whole(text.into()))
    };
    let fake = Fake::start(|_| {
        vec![
            whole("/v2/t/manifests/1", &manifest),
            whole(at(format!("/v2/t/blobs/{}", digest_of(config.as_bytes()))), &config),
            endless(at(format!("/v2/t/blobs/{digest}")), "200 OK"),
        ]
    })
    .await;
    let node = Node::new();
    let before = node.images.usage().bytes;
    let (what, wrong) = content(node.pull(&fake.reference()).await);
    assert!(what.starts_with("layer 1 "), "{what}");
    // Blanks are no archive, and more of them than were announced are none either.
    assert!(
        matches!(
            wrong,
            ContentError::TooLong { .. } | ContentError::Archive { .. } | ContentError::Digest { .. }
        ),
        "{wrong:?}"
    );
    fake.assert_bounded();
    node.assert_no_leftovers();
    let kept = node.images.usage().bytes - before;
    // With a block or two of directories.
    assert!(kept <= SIZE as u64 + 16_384, "{kept} bytes are kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_error_is_cut() {
    for (path, status) in
        [("/v2/t/manifests/1", "500 Internal Server Error"), ("/v2/t/manifests/1", "403 Forbidden")]
    {
        let fake = Fake::start(|_| vec![endless(path, status)]).await;
        let refused = Node::new().pull(&fake.reference()).await;
        assert!(matches!(refused, Err(ImageError::Registry { .. } | ImageError::Denied { .. })), "{status}");
        fake.assert_bounded();
    }
    let fake = Fake::start(|address| {
        vec![
            challenge(address),
            challenge_at("/v2/t/manifests/1", address),
            endless("/token", "403 Forbidden"),
        ]
    })
    .await;
    let refused = Node::new().pull(&fake.reference()).await;
    assert!(matches!(refused, Err(ImageError::Unauthorized { .. })), "{refused:?}");
    fake.assert_bounded();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_never_decoded() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..64 {
        encoder.write_all(&[b' '; 1 << 20]).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    let headers = format!("content-encoding: gzip\r\ncontent-length: {}\r\n", bomb.len());
    let fake =
        Fake::start(|_| vec![answer("/v2/t/manifests/1", "200 OK", &headers, Body::Whole(bomb))]).await;
    let (_, wrong) = content(Node::new().pull(&fake.reference()).await);
    assert!(matches!(wrong, ContentError::Json(_)), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_body_is_given_up() {
    let limits = Limits { silence: Duration::from_millis(50), ..limits() };
    let headers = "transfer-encoding: chunked\r\n";
    let manifest = answer("/v2/t/manifests/1", "200 OK", headers, Body::Silent);
    let fake = Fake::start(|_| vec![manifest]).await;
    let silent = Node::with_limits(limits.clone()).pull(&fake.reference()).await;
    assert!(matches!(silent, Err(ImageError::Unreachable { .. })), "{silent:?}");
    let token = answer("/token", "200 OK", headers, Body::Silent);
    let fake = Fake::start(|address| vec![challenge(address), token]).await;
    let silent = Node::with_limits(limits).pull(&fake.reference()).await;
    assert!(matches!(silent, Err(ImageError::Unreachable { .. })), "{silent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_asked_for_with_scope_and_service() {
    // The answered paths show the request's parameters.
    let token = r#"{"access_token":"abc","expires_in":300}"#;
    let fake = Fake::start(|address| {
        vec![
            challenge(address),
            answer(
                "/token?scope=repository%3At%3Apull&service=s ",
                "200 OK",
                "connection: close\r\n",
                Body::Whole(token.into()),
            ),
            answer("/v2/t/manifests/1", "200 OK", "connection: close\r\n", Body::Whole(b"{}".to_vec())),
        ]
    })
    .await;
    let (_, wrong) = content(Node::new().pull(&fake.reference()).await);
    assert!(matches!(wrong, ContentError::Json(_)), "{wrong:?}");
}
