//! Indexes as registries have them: within each other, without platforms, and without end.

use crate::node::{Node, content};
use crate::wire::{Made, Request, Server, entry, reply};
use runtime_image::{ContentError, ImageErrorKind};
use serde_json::{Value, json};
use tests_registry::digest_of;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn index(entries: &[Value]) -> Vec<u8> {
    json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries }).to_string().into_bytes()
}

/// Serves these images and indexes; the last index is the tag.
async fn serve(images: &[&Made], indexes: &[Vec<u8>]) -> Server {
    let images: Vec<Made> = images.iter().map(|made| (*made).clone()).collect();
    let indexes = indexes.to_vec();
    Server::start(move |_| {
        move |request: &Request| {
            let last = request.path.rsplit('/').next().unwrap_or_default();
            let index = indexes.iter().find(|bytes| digest_of(bytes) == last);
            let index = index.or(indexes.last().filter(|_| last == "1"));
            let made = || images.iter().find_map(|made| made.answer(request));
            index.map(|bytes| reply(200, bytes.clone())).or_else(made).unwrap_or(reply(404, "{}"))
        }
    })
    .await
}

fn reference(server: &Server) -> String {
    format!("{}/t:1", server.address)
}

fn platform(architecture: &str) -> Value {
    json!({ "os": "linux", "architecture": architecture })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_within_an_index_is_followed() {
    let (ours, other) = (Made::new("ours", "amd64"), Made::new("other", "arm64"));
    // The first nested index has nothing for this node.
    let nested = [index(&[other.entry(platform("arm64"))]), index(&[ours.entry(platform("amd64"))])];
    let outer = index(&[entry(&nested[0], INDEX, Value::Null), entry(&nested[1], INDEX, Value::Null)]);
    let server = serve(&[&ours, &other], &[nested[0].clone(), nested[1].clone(), outer.clone()]).await;
    let image = Node::new().pull(&reference(&server)).await.unwrap();
    assert_eq!(image.config.run.cmd, ["ours"]);
    assert_eq!(image.repo_digests, [format!("{}/t@{}", server.address, digest_of(&outer))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_without_a_platform_is_what_its_config_says() {
    let (ours, other) = (Made::new("ours", "amd64"), Made::new("other", "arm64"));
    let outer = index(&[other.entry(Value::Null), ours.entry(Value::Null)]);
    let server = serve(&[&ours, &other], &[outer]).await;
    assert_eq!(Node::new().pull(&reference(&server)).await.unwrap().config.run.cmd, ["ours"]);
    let server = serve(&[&other], &[index(&[other.entry(Value::Null)])]).await;
    let refused = Node::new().pull(&reference(&server)).await;
    assert_eq!(refused.clone().unwrap_err().kind(), ImageErrorKind::NotFound);
    assert_eq!(content(refused).1, ContentError::Platform("linux/arm64".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_without_end_meet_a_bound() {
    let ours = Made::new("ours", "amd64");
    let mut nested = vec![index(&[ours.entry(platform("amd64"))])];
    for _ in 0..5 {
        nested.push(index(&[entry(&nested[nested.len() - 1], INDEX, Value::Null)]));
    }
    let server = serve(&[&ours], &nested).await;
    let (_, wrong) = content(Node::new().pull(&reference(&server)).await);
    assert_eq!(wrong, ContentError::Limit { size: 5, unit: "indexes in each other", limit: 4 });
    let other = Made::new("other", "arm64");
    let many = vec![other.entry(Value::Null); 100];
    let server = serve(&[&other], &[index(&many)]).await;
    let (_, wrong) = content(Node::new().pull(&reference(&server)).await);
    assert_eq!(wrong, ContentError::Limit { size: 33, unit: "documents of one index", limit: 32 });
}
