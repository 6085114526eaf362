//! The number of layers in progress at once over all pulls, and the progress of the waiting ones. The test
//! has its own registry and needs nothing installed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::node::Node;
use crate::wire::read_head;
use runtime_image::{Image, LayerState, Running};
use serde_json::json;
use tests_registry::{Compression, Layer, digest_of};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Most layers in progress at once over all pulls.
const AT_ONCE_MAX: usize = 16;

/// Layers of each image: as many as one pull has under way.
const LAYERS: usize = 3;

/// A registry sending layers except for their last byte. The last byte follows when the test allows it.
struct Slow {
    address: String,
    documents: HashMap<String, Vec<u8>>,
    layers: HashMap<String, Vec<u8>>,
    open: AtomicUsize,
    open_max: AtomicUsize,
    let_go: watch::Sender<bool>,
}

impl Slow {
    /// A registry of so many images, and one without layers (`t:none`).
    async fn start(images: usize) -> Arc<Slow> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut slow = Slow {
            address: listener.local_addr().unwrap().to_string(),
            documents: HashMap::new(),
            layers: HashMap::new(),
            open: AtomicUsize::default(),
            open_max: AtomicUsize::default(),
            let_go: watch::Sender::new(false),
        };
        for image in 0..images {
            let layer = |number: usize| {
                let builder = Layer::builder().compression(Compression::None);
                builder.file("f", 0o644, format!("layer {number} of image {image}")).build()
            };
            slow.put(&image.to_string(), &(0..LAYERS).map(layer).collect::<Vec<_>>());
        }
        slow.put("none", &[]);
        let slow = Arc::new(slow);
        let serving = Arc::clone(&slow);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let slow = Arc::clone(&serving);
                tokio::spawn(async move { slow.serve(stream).await });
            }
        });
        slow
    }

    fn put(&mut self, tag: &str, layers: &[Layer]) {
        let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.diff_id.as_str()).collect();
        let rootfs = json!({ "diff_ids": diff_ids });
        let config =
            json!({ "os": "linux", "architecture": "amd64", "rootfs": rootfs, "config": { "User": tag } });
        let config = config.to_string();
        let of = |layer: &Layer| json!({ "mediaType": layer.media_type, "digest": layer.digest(), "size": layer.bytes.len() });
        let manifest = json!({
            "schemaVersion": 2,
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest_of(config.as_bytes()), "size": config.len() },
            "layers": layers.iter().map(of).collect::<Vec<_>>(),
        });
        self.documents.insert(format!("/v2/t/manifests/{tag}"), manifest.to_string().into_bytes());
        self.documents.insert(format!("/v2/t/blobs/{}", digest_of(config.as_bytes())), config.into_bytes());
        for layer in layers {
            self.layers.insert(format!("/v2/t/blobs/{}", layer.digest()), layer.bytes.clone());
        }
    }

    async fn serve(&self, mut stream: TcpStream) {
        let Some(head) = read_head(&mut stream).await else { return };
        let path = head.split(' ').nth(1).unwrap_or_default();
        let layer = self.layers.get(path);
        let body = layer.or(self.documents.get(path)).map_or(&b"{}"[..], Vec::as_slice);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        let (first, last) = body.split_at(body.len() - 1);
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(first).await.unwrap();
        if layer.is_some() {
            self.open_max.fetch_max(self.open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            self.let_go.subscribe().wait_for(|let_go| *let_go).await.unwrap();
            self.open.fetch_sub(1, Ordering::SeqCst);
        }
        stream.write_all(last).await.unwrap();
    }
}

/// How many layers of these pulls are in this state.
fn count(pulls: &mut [Running<Image>], state: LayerState) -> usize {
    let views = pulls.iter_mut().map(Running::view);
    views.map(|view| view.layers.iter().filter(|layer| layer.state == state).count()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_beyond_the_places_of_all_pulls_wait_and_say_so() {
    const PULLS: usize = 7;
    let (slow, node) = (Slow::start(PULLS).await, Node::new());
    let name = |tag: &str| format!("{}/t:{tag}", slow.address);
    let mut pulls = Vec::new();
    for image in 0..PULLS {
        pulls.push(node.images.begin_pull(&name(&image.to_string()), None).unwrap());
    }
    while count(&mut pulls, LayerState::Downloading) < AT_ONCE_MAX
        || count(&mut pulls, LayerState::Waiting) < 5
    {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    // A pull without layers continues meanwhile, and no layer gets an extra slot.
    node.pull(&name("none")).await.unwrap();
    assert_eq!(slow.open.load(Ordering::SeqCst), AT_ONCE_MAX);
    assert_eq!(count(&mut pulls, LayerState::Waiting), PULLS * LAYERS - AT_ONCE_MAX);
    slow.let_go.send_replace(true);
    for pull in &mut pulls {
        pull.ended().await.unwrap();
    }
    assert_eq!(count(&mut pulls, LayerState::Done), PULLS * LAYERS);
    assert_eq!(slow.open_max.load(Ordering::SeqCst), AT_ONCE_MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_is_shared_has_one_progress_and_outlives_who_began_it() {
    let (slow, node) = (Slow::start(1).await, Node::new());
    let name = format!("{}/t:0", slow.address);
    let first = node.images.begin_pull(&name, None).unwrap();
    let mut second = node.images.begin_pull(&name, None).unwrap();
    drop(first);
    loop {
        let layers = second.view().layers;
        if layers.iter().filter(|layer| layer.state == LayerState::Downloading).count() == LAYERS {
            slow.let_go.send_replace(true);
        }
        if layers.iter().filter(|layer| layer.state == LayerState::Done).count() == LAYERS {
            break;
        }
        second.changed().await;
    }
    let image = second.ended().await.unwrap();
    assert_eq!(image.repo_tags, [name]);
    let view = second.view();
    assert!(view.layers.iter().all(|layer| layer.received_bytes == layer.total_bytes), "{view:?}");
    assert_eq!(slow.layers.len(), LAYERS);
    assert_eq!(slow.open_max.load(Ordering::SeqCst), LAYERS, "each layer was asked for once");
}
