//! The test's own registry: HTTP on loopback, with a function for each request, and a record of the requests.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tests_registry::{Layer, digest_of};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        all.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.as_str())
    }
}

/// One answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn reply(status: u16, body: impl Into<Vec<u8>>) -> Reply {
    Reply { status, headers: Vec::new(), body: body.into() }
}

impl Reply {
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name, value.into()));
        self
    }
}

type Answer = dyn Fn(&Request) -> Reply + Send + Sync;

/// A server, for as long as the test's runtime.
pub(crate) struct Server {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts a server. The answering function may know its address.
    pub(crate) async fn start<F>(answers: impl FnOnce(&str) -> F) -> Server
    where
        F: Fn(&Request) -> Reply + Send + Sync + 'static,
    {
        Server::start_behind(None, answers).await
    }

    /// Starts a server, behind TLS if there is an acceptor.
    pub(crate) async fn start_behind<F>(tls: Option<TlsAcceptor>, answers: impl FnOnce(&str) -> F) -> Server
    where
        F: Fn(&Request) -> Reply + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (answer, asked): (Arc<Answer>, _) =
            (Arc::new(answers(&address)), Arc::<Mutex<Vec<_>>>::default());
        let record = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, answer, record) = (tls.clone(), answer.clone(), record.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, answer, record).await,
                        // Failing clients have their own error.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, answer, record).await;
                            }
                        }
                    }
                });
            }
        });
        Server { address, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|request| request.path).collect()
    }
}

/// Reads a request up to the end of its headers; none where the client hangs up before.
pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 16_384 {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: Arc<Answer>,
    asked: Arc<Mutex<Vec<Request>>>,
) {
    let Some(head) = read_head(&mut stream).await else { return };
    let mut first = head.split(' ').map(str::to_owned);
    let (method, path) = (first.next().unwrap(), first.next().unwrap());
    let pairs = head.lines().filter_map(|line| line.split_once(": "));
    let headers = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut request = Request { method, path, headers, body: String::new() };
    let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    if stream.read_exact(&mut body).await.is_err() {
        return;
    }
    request.body = String::from_utf8(body).unwrap();
    let reply = answer(&request);
    asked.lock().unwrap().push(request);
    let mut head = format!("HTTP/1.1 {} x\r\ncontent-length: {}\r\n", reply.status, reply.body.len());
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    // The other side may have hung up. This is its own business.
    let _ = stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).await;
    let _ = stream.write_all(&reply.body).await;
    let _ = stream.shutdown().await;
}

/// The documents of an image with one small layer. Its config contains `name`, so images differ.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) manifest: Vec<u8>,
    pub(crate) blobs: Vec<Vec<u8>>,
}

impl Made {
    pub(crate) fn new(name: &str, architecture: &str) -> Made {
        let layer = Layer::builder().file("name", 0o644, name).build();
        let config = json!({
            "os": "linux", "architecture": architecture, "config": { "Cmd": [name] },
            "rootfs": { "diff_ids": [layer.diff_id] },
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest_of(&config), "size": config.len() },
            "layers": [{ "mediaType": layer.media_type, "digest": layer.digest(), "size": layer.bytes.len() }],
        });
        Made { manifest: manifest.to_string().into_bytes(), blobs: vec![config, layer.bytes] }
    }

    /// The entry of an index for this image.
    pub(crate) fn entry(&self, platform: Value) -> Value {
        entry(&self.manifest, "application/vnd.oci.image.manifest.v1+json", platform)
    }

    /// The answer to a request for a document or blob of this image, by digest or as the tag `1`.
    pub(crate) fn answer(&self, request: &Request) -> Option<Reply> {
        let last = request.path.split('?').next()?.rsplit('/').next()?;
        let all = self.blobs.iter().chain([&self.manifest]);
        let mut found =
            all.filter(|bytes| last == digest_of(bytes)).chain((last == "1").then_some(&self.manifest));
        found.next().map(|bytes| reply(200, bytes.clone()))
    }
}

/// The entry of an index for a document.
pub(crate) fn entry(bytes: &[u8], media_type: &str, platform: Value) -> Value {
    let mut entry = json!({ "mediaType": media_type, "digest": digest_of(bytes), "size": bytes.len() });
    if !platform.is_null() {
        entry["platform"] = platform;
    }
    entry
}
