//! The service on a unix socket, with a store of its own behind it.

use std::sync::Arc;

use proto_images::v1::images_client::ImagesClient;
use proto_images::v1::import_request::{Begin, End, Part};
use proto_images::v1::{ImportRequest, Progress, PullRequest, State, layer};
use runtime_image::{Images, RegistryConfig};
use serde_json::json;
use tests_registry::{Layer, Registry};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status, Streaming};

use super::Transfers;

struct Served {
    client: ImagesClient<Channel>,
    images: Images,
    stopping: Arc<watch::Sender<bool>>,
    dir: tempfile::TempDir,
}

impl Served {
    async fn start() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let images = Images::open(&dir.path().join("images"), RegistryConfig::default()).unwrap();
        let stopping = Arc::new(watch::Sender::new(false));
        let socket = dir.path().join("s.sock");
        let listener = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
        let service = Transfers::new(images.clone(), Arc::clone(&stopping), None).server();
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(listener));
        let connect = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
        });
        let channel =
            Endpoint::from_static("http://localhost").connect_with_connector(connect).await.unwrap();
        Served { client: ImagesClient::new(channel), images, stopping, dir }
    }

    async fn pull(&mut self, image: &str) -> Result<Streaming<Progress>, Status> {
        let request = PullRequest { image: image.to_owned(), credentials: None };
        self.client.pull(request).await.map(tonic::Response::into_inner)
    }

    /// An import, and the sender of its archive.
    async fn import(&mut self, name: &str) -> (mpsc::Sender<ImportRequest>, Streaming<Progress>) {
        let (sender, requests) = mpsc::channel(4);
        sender.send(request(Part::Begin(Begin { name: name.to_owned() }))).await.unwrap();
        let answer = self.client.import(ReceiverStream::new(requests)).await.unwrap();
        (sender, answer.into_inner())
    }

    fn has_no_spool(&self) -> bool {
        std::fs::read_dir(self.dir.path().join("images/tmp")).unwrap().count() == 0
    }
}

fn request(part: Part) -> ImportRequest {
    ImportRequest { part: Some(part) }
}

/// All messages of an answer, and how it ended.
async fn all(mut answer: Streaming<Progress>) -> (Vec<Progress>, Result<(), Status>) {
    let mut messages = Vec::new();
    loop {
        match answer.message().await {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => return (messages, Ok(())),
            Err(status) => return (messages, Err(status)),
        }
    }
}

fn layers() -> Vec<Layer> {
    vec![Layer::builder().file("a", 0o644, "a").build(), Layer::builder().file("b", 0o644, "b").build()]
}

/// An archive as `docker save` writes it.
fn archive() -> Vec<u8> {
    let layers = layers();
    let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.diff_id.as_str()).collect();
    let config =
        json!({ "architecture": "amd64", "os": "linux", "rootfs": { "diff_ids": diff_ids } }).to_string();
    let list =
        json!([{ "Config": "c.json", "RepoTags": ["shop/a:1"], "Layers": ["0.tar", "1.tar"] }]).to_string();
    let tar = Layer::builder().file("0.tar", 0o644, &layers[0].bytes).file("1.tar", 0o644, &layers[1].bytes);
    tar.file("c.json", 0o644, config).file("manifest.json", 0o644, list).into_tar()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_comes_in_pieces_is_an_image_at_the_end() {
    let mut served = Served::start().await;
    let (sender, answer) = served.import("").await;
    for piece in archive().chunks(1000) {
        sender.send(request(Part::Chunk(piece.to_vec()))).await.unwrap();
    }
    sender.send(request(Part::End(End {}))).await.unwrap();
    let (messages, ended) = all(answer).await;
    ended.unwrap();
    let last = messages.last().unwrap();
    assert_eq!((last.state(), last.received_bytes), (State::Done, archive().len() as u64));
    assert_eq!(last.images[0].repo_tags, ["docker.io/shop/a:1"]);
    assert!(
        last.layers.len() == 2 && last.layers.iter().all(|one| one.state() == layer::State::Done),
        "{last:?}"
    );
    assert!(messages[..messages.len() - 1].iter().all(|message| message.images.is_empty()));
    assert_eq!(served.images.find("shop/a:1").unwrap().id, last.images[0].id);
    assert!(served.has_no_spool());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_whose_client_goes_away_leaves_nothing() {
    let mut served = Served::start().await;
    // All bytes, but not the end: once the requests end, and once the call does.
    let (sender, answer) = served.import("").await;
    sender.send(request(Part::Chunk(archive()))).await.unwrap();
    drop(sender);
    let status = all(answer).await.1.unwrap_err();
    assert!(status.message().contains("the client ended before the archive"), "{status:?}");
    assert!(served.has_no_spool() && served.images.list().is_empty());

    let (sender, mut answer) = served.import("").await;
    sender.send(request(Part::Chunk(archive()))).await.unwrap();
    while answer.message().await.unwrap().unwrap().received_bytes == 0 {}
    assert!(!served.has_no_spool());
    drop((sender, answer));
    while !served.has_no_spool() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(served.images.list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_make_no_sense_are_refused() {
    let mut served = Served::start().await;
    assert_eq!(served.pull("").await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(served.pull("Not A Name").await.unwrap_err().code(), Code::InvalidArgument);
    for first in [None, Some(Part::End(End {})), Some(Part::Chunk(vec![1]))] {
        let requests = tokio_stream::iter([ImportRequest { part: first }]);
        let status = served.client.import(requests).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    }
    for second in [None, Some(Part::Chunk(Vec::new())), Some(Part::Begin(Begin::default()))] {
        let (sender, answer) = served.import("").await;
        sender.send(ImportRequest { part: second }).await.unwrap();
        let status = all(answer).await.1.unwrap_err();
        assert!(status.message().contains("has no bytes"), "{status:?}");
    }
    let (sender, answer) = served.import("").await;
    let _ = sender.send(request(Part::Chunk(vec![0; super::REQUEST_BYTES_MAX]))).await;
    assert!(all(answer).await.1.is_err(), "a piece that is too long");
    assert!(served.has_no_spool());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_not_there_is_the_answers_end() {
    let mut served = Served::start().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (messages, ended) = all(served.pull(&format!("{closed}/a:1")).await.unwrap()).await;
    assert_eq!(messages[0].state(), State::Resolving);
    let status = ended.unwrap_err();
    assert!(status.message().contains(&closed.to_string()), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_who_pull_one_name_follow_one_pull() {
    if !Registry::is_installed() {
        return;
    }
    let mut served = Served::start().await;
    let registry = Registry::start().unwrap();
    registry.push_image("t/a", "1", layers(), json!({})).await.unwrap();
    let name = registry.reference("t/a", "1");
    let (one, gone) = (served.pull(&name).await.unwrap(), served.pull(&name).await.unwrap());
    drop(gone);
    let (messages, ended) = all(one).await;
    ended.unwrap();
    let last = messages.last().unwrap();
    assert_eq!((last.state(), &last.images[0].repo_tags), (State::Done, &vec![name.clone()]));
    assert!(last.layers.iter().all(|one| one.received_bytes == one.total_bytes), "{last:?}");
    let (messages, ended) = all(served.pull(&name).await.unwrap()).await;
    ended.unwrap();
    let last = messages.last().unwrap();
    assert!(last.layers.iter().all(|one| one.state() == layer::State::Exists), "{last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stops_ends_the_answer() {
    let mut served = Served::start().await;
    let (_sender, answer) = served.import("").await;
    served.stopping.send_replace(true);
    assert_eq!(all(answer).await.1.unwrap_err().code(), Code::Unavailable);
}
