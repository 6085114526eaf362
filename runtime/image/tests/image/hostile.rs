//! A registry misbehaving on the wire: a few lines of HTTP on loopback, never sent by a real registry. Needs
//! nothing installed.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::node::{Node, content, limits};
use crate::wire::read_head;
use runtime_image::{ContentError, ImageError, ImageErrorKind, Images, Limits, RegistryConfig};
use serde_json::json;
use tests_registry::{Compression, Layer, digest_of};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// An answer to one path.
#[derive(Clone)]
struct Answer {
    body: Vec<u8>,
    /// The connection ends after so many bytes of the body, once for each number.
    cuts: Vec<usize>,
    /// The body stops after so many bytes until the gate opens.
    gate: Option<(usize, watch::Receiver<bool>)>,
}

#[derive(Default)]
struct State {
    answers: HashMap<String, Answer>,
    /// Path and Range header of each request.
    asked: Vec<(String, Option<String>)>,
}

struct Fake {
    address: String,
    state: Arc<Mutex<State>>,
}

impl Fake {
    async fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Fake { address, state }
    }

    fn put(&self, path: &str, body: impl Into<Vec<u8>>) {
        self.put_cut(path, body, &[]);
    }

    fn put_cut(&self, path: &str, body: impl Into<Vec<u8>>, cuts: &[usize]) {
        let answer = Answer { body: body.into(), cuts: cuts.to_vec(), gate: None };
        self.state.lock().unwrap().answers.insert(format!("/v2/t/{path}"), answer);
    }

    /// Stops the body of a blob after so many bytes, until the returned gate opens.
    fn hold(&self, digest: &str, after: usize) -> watch::Sender<bool> {
        let (open, gate) = watch::channel(false);
        let mut state = self.state.lock().unwrap();
        state.answers.get_mut(&format!("/v2/t/blobs/{digest}")).unwrap().gate = Some((after, gate));
        open
    }

    fn asked(&self, path: &str) -> Vec<Option<String>> {
        let path = format!("/v2/t/{path}");
        let state = self.state.lock().unwrap();
        state.asked.iter().filter(|(asked, _)| *asked == path).map(|(_, range)| range.clone()).collect()
    }

    fn reference(&self) -> String {
        format!("{}/t:1", self.address)
    }

    /// Puts an image of these layers; `change` may spoil its manifest.
    fn put_image(&self, layers: &[Layer], change: impl FnOnce(&mut serde_json::Value)) {
        let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.diff_id.as_str()).collect();
        let config =
            json!({ "os": "linux", "architecture": "amd64", "rootfs": { "diff_ids": diff_ids } }).to_string();
        let described: Vec<_> = layers
            .iter()
            .map(|layer| json!({ "mediaType": layer.media_type, "digest": layer.digest(), "size": layer.bytes.len() }))
            .collect();
        let mut manifest = json!({
            "schemaVersion": 2,
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest_of(config.as_bytes()), "size": config.len() },
            "layers": described,
        });
        change(&mut manifest);
        self.put("manifests/1", manifest.to_string());
        self.put(&format!("blobs/{}", digest_of(config.as_bytes())), config);
        for layer in layers {
            self.put(&format!("blobs/{}", layer.digest()), layer.bytes.clone());
        }
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let Some(head) = read_head(&mut stream).await else { return };
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let range = head
        .lines()
        .find_map(|line| line.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("range")))
        .map(|(_, value)| value.to_owned());
    let answer = {
        let mut state = state.lock().unwrap();
        state.asked.push((path.clone(), range.clone()));
        let answer = state.answers.get(&path).cloned();
        if let Some(known) = state.answers.get_mut(&path) {
            known.cuts.drain(..known.cuts.len().min(1));
        }
        answer
    };
    let from = range
        .and_then(|range| range.trim_start_matches("bytes=").trim_end_matches('-').parse::<usize>().ok());
    let (status, body, cut) = match &answer {
        None if path == "/v2/" => ("200 OK", &b"{}"[..], None),
        None => ("404 Not Found", &b""[..], None),
        Some(Answer { body, cuts, .. }) => match from {
            Some(from) if from <= body.len() => ("206 Partial Content", &body[from..], cuts.first().copied()),
            _ => ("200 OK", &body[..], cuts.first().copied()),
        },
    };
    let place = match (status, from, &answer) {
        ("206 Partial Content", Some(from), Some(Answer { body, .. })) => {
            format!("content-range: bytes {from}-{}/{}\r\n", body.len() - 1, body.len())
        }
        _ => String::new(),
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{place}content-length: {length}\r\nconnection: close\r\n\r\n");
    // The other side may have hung up. This is its own business.
    let _ = stream.write_all(head.as_bytes()).await;
    let mut body = &body[..cut.unwrap_or(body.len())];
    if let Some((after, mut gate)) = answer.as_ref().and_then(|answer| answer.gate.clone()) {
        let _ = stream.write_all(&body[..after]).await;
        body = &body[after..];
        let _ = gate.wait_for(|is_open| *is_open).await;
    }
    let _ = stream.write_all(body).await;
    let _ = stream.shutdown().await;
}

fn layer(bytes: usize) -> Layer {
    Layer::builder().compression(Compression::None).file("f", 0o644, vec![b'x'; bytes]).build()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_not_one_is_refused() {
    let (fake, node) = (Fake::start().await, Node::new());
    fake.put("manifests/1", "<html>log in here</html>");
    let (what, wrong) = content(node.pull(&fake.reference()).await);
    assert_eq!(what, format!("manifest {}", fake.reference()));
    assert!(matches!(wrong, ContentError::Json(_)), "{wrong:?}");
    let node = Node::with_limits(Limits { manifest_bytes: 10, ..limits() });
    let (_, wrong) = content(node.pull(&fake.reference()).await);
    assert_eq!(wrong, ContentError::Limit { size: 24, unit: "bytes", limit: 10 });
}

#[tokio::test(flavor = "multi_thread")]
async fn another_manifest_than_the_digest_asked_for_is_refused() {
    let (fake, node) = (Fake::start().await, Node::new());
    let digest = digest_of(b"what was meant");
    fake.put(&format!("manifests/{digest}"), "{}");
    let (_, wrong) = content(node.pull(&format!("{}/t@{digest}", fake.address)).await);
    assert_eq!(wrong, ContentError::Digest { expected: digest, actual: digest_of(b"{}") });
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pulls_at_once_are_one() {
    let (fake, node) = (Fake::start().await, Node::new());
    fake.put_image(&[layer(1000)], |_| {});
    let reference = fake.reference();
    let (one, two) = tokio::join!(node.pull(&reference), node.pull(&reference));
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!(fake.asked("manifests/1").len(), 1);
    node.pull(&reference).await.unwrap();
    // Its digest, which the host does not say, and the manifest.
    assert_eq!(fake.asked("manifests/1").len(), 3);
    assert_eq!(fake.asked(&format!("blobs/{}", layer(1000).digest())).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_breaks_off_is_resumed() {
    let (fake, node) = (Fake::start().await, Node::new());
    let layer = layer(200_000);
    let path = format!("blobs/{}", layer.digest());
    fake.put_image(std::slice::from_ref(&layer), |_| {});
    // Each time some bytes come, and so the transfer goes on as often as need be.
    fake.put_cut(&path, layer.bytes.clone(), &[20_000, 0, 0, 1000, 0, 10, 0, 0, 1, 7000]);
    node.pull(&fake.reference()).await.unwrap();
    assert_eq!(fake.asked(&path).len(), 11);
    assert_eq!(fake.asked(&path).last(), Some(&Some("bytes=28011-".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_without_a_byte_is_given_up_and_resumed_by_the_next_pull() {
    let (fake, node) = (Fake::start().await, Node::new());
    let layer = layer(200_000);
    let path = format!("blobs/{}", layer.digest());
    fake.put_image(std::slice::from_ref(&layer), |_| {});
    fake.put_cut(&path, layer.bytes.clone(), &[50_000, 0, 0, 0]);
    let broken = node.pull(&fake.reference()).await;
    assert!(matches!(&broken, Err(ImageError::Transfer { received: 50_000, .. })), "{broken:?}");
    node.assert_no_leftovers();
    node.pull(&fake.reference()).await.unwrap();
    assert_eq!(fake.asked(&path).last(), Some(&Some("bytes=50000-".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_failed_layer_ends_the_others_and_their_bytes_are_resumed() {
    let (fake, node) = (Fake::start().await, Node::new());
    let (wrong, slow) = (layer(1000), layer(4_000_000));
    fake.put_image(&[wrong.clone(), slow.clone()], |_| {});
    fake.put(&format!("blobs/{}", wrong.digest()), vec![b'?'; wrong.bytes.len()]);
    let (fails, arrives) = (fake.hold(&wrong.digest(), 0), fake.hold(&slow.digest(), 50_000));
    let (images, reference) = (node.images.clone(), fake.reference());
    let pull = tokio::spawn(async move { images.pull(&reference, None).await });
    let part = node.blob(&slow.digest(), ".partial");
    while fs::metadata(&part).map_or(0, |part| part.len()) < 50_000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fails.send_replace(true);
    let (what, _) = content(pull.await.unwrap());
    assert!(what.starts_with("layer 1 "), "{what}");
    node.assert_no_leftovers();
    assert_eq!(fs::metadata(&part).unwrap().len(), 50_000);

    fake.put(&format!("blobs/{}", wrong.digest()), wrong.bytes.clone());
    arrives.send_replace(true);
    node.pull(&fake.reference()).await.unwrap();
    let asked = fake.asked(&format!("blobs/{}", slow.digest()));
    assert_eq!(asked.last(), Some(&Some("bytes=50000-".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_was_complete_is_not_fetched_again_after_a_restart() {
    let (fake, node) = (Fake::start().await, Node::new());
    let (quick, slow) = (layer(1000), layer(200_000));
    fake.put_image(&[quick.clone(), slow.clone()], |_| {});
    let arrives = fake.hold(&slow.digest(), 50_000);
    let (images, reference) = (node.images.clone(), fake.reference());
    let killed = tokio::spawn(async move { images.pull(&reference, None).await });
    let index = node.directory.path().join("images.json");
    while !fs::read_to_string(&index).is_ok_and(|index| index.contains(&quick.diff_id)) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // As after a kill: the first pull has no directory any more.
    let next = Node::new();
    fs::remove_dir_all(next.directory.path()).unwrap();
    fs::rename(node.directory.path(), next.directory.path()).unwrap();
    let images = Images::open(next.directory.path(), RegistryConfig::default()).unwrap();
    images.users_are_known().unwrap();
    arrives.send_replace(true);
    killed.await.unwrap().unwrap_err();
    images.pull(&fake.reference(), None).await.unwrap();
    assert_eq!(fake.asked(&format!("blobs/{}", quick.digest())).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_bytes_than_the_descriptor_says_are_not_taken() {
    let (fake, node) = (Fake::start().await, Node::new());
    let layer = layer(100_000);
    fake.put_image(std::slice::from_ref(&layer), |manifest| manifest["layers"][0]["size"] = json!(60_000));
    let (what, wrong) = content(node.pull(&fake.reference()).await);
    assert!(what.starts_with("layer 1 "), "{what}");
    assert_eq!(wrong, ContentError::TooLong { expected: 60_000 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_is_too_long_fails_each_pull_after_few_requests() {
    let (fake, node) = (Fake::start().await, Node::new());
    let layer = layer(4_000_000);
    let config = json!({ "os": "linux", "architecture": "amd64", "rootfs": { "diff_ids": [layer.diff_id] },
        "history": [{ "comment": "x".repeat(2_000_000) }] })
    .to_string();
    let config_digest = digest_of(config.as_bytes());
    fake.put(&format!("blobs/{config_digest}"), config.as_bytes());
    // First the layer is too long, then also the config.
    for (digest, config_bytes) in [(layer.digest(), config.len()), (config_digest.clone(), config.len() - 1)]
    {
        fake.put_image(std::slice::from_ref(&layer), |manifest| {
            manifest["layers"][0]["size"] = json!(3_000_000);
            manifest["config"]["digest"] = json!(config_digest);
            manifest["config"]["size"] = json!(config_bytes);
        });
        for pull in 1..=3 {
            let reference = fake.reference();
            let pulled = tokio::time::timeout(Duration::from_secs(60), node.pull(&reference)).await;
            let (_, wrong) = content(pulled.expect("the pull ends"));
            assert!(matches!(wrong, ContentError::TooLong { .. }), "{wrong:?}");
            assert!(!node.blob(&digest, ".partial").exists());
            assert_eq!(fake.asked(&format!("blobs/{digest}")).last(), Some(&None), "nothing is resumed");
            assert!(fake.asked(&format!("blobs/{digest}")).len() < 5 * pull);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_over_the_limits_are_refused_before_anything_is_fetched() {
    let (fake, node) = (Fake::start().await, Node::new());
    let layer = layer(1000);
    fake.put_image(std::slice::from_ref(&layer), |manifest| {
        manifest["layers"][0]["size"] = json!(1_u64 << 50);
    });
    let (_, wrong) = content(node.pull(&fake.reference()).await);
    assert!(matches!(wrong, ContentError::Limit { unit: "bytes", .. }), "{wrong:?}");
    let many = vec![layer.clone(); 300];
    fake.put_image(&many, |_| {});
    let (_, wrong) = content(node.pull(&fake.reference()).await);
    assert_eq!(wrong, ContentError::Limit { size: 300, unit: "layers", limit: 127 });
    assert!(fake.asked(&format!("blobs/{}", layer.digest())).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_no_disk_takes_is_refused_before_anything_is_fetched() {
    let (fake, node) = (Fake::start().await, Node::new());
    let layers: Vec<Layer> = (0..127).map(|more| layer(1000 + more)).collect();
    fake.put_image(&layers, |manifest| {
        for layer in manifest["layers"].as_array_mut().unwrap() {
            layer["size"] = json!(32_u64 << 30);
        }
    });
    let refused = node.pull(&fake.reference()).await.unwrap_err();
    assert_eq!(refused.kind(), ImageErrorKind::Full);
    // Each layer's blob, and its unpacked contents.
    let expected = 2 * 127 * (32_u64 << 30);
    assert!(matches!(refused, ImageError::NoRoom { wanted, .. } if wanted == expected), "{refused}");
    assert!(fake.asked(&format!("blobs/{}", layers[0].digest())).is_empty());
}
