//! Pulls of images that are here: the requests they spend. The test has its own registry and needs nothing
//! installed.

use std::fs;
use std::sync::{Arc, Mutex};

use crate::node::Node;
use crate::wire::{Made, Reply, Request, Server, reply};
use runtime_image::ImageErrorKind;
use tests_registry::digest_of;

/// How a registry answers a HEAD.
type Head = fn(Reply) -> Reply;

/// A registry with the image of `made` under all tags, for callers with a token. Its manifests have their
/// digests in a header.
async fn server(made: &Arc<Mutex<Made>>, head: Head) -> Server {
    let made = Arc::clone(made);
    Server::start(move |_| {
        move |request: &Request| {
            let made = made.lock().unwrap();
            if !request.path.contains("/manifests/") {
                return made.answer(request).unwrap_or(reply(200, "{}"));
            }
            let digest = digest_of(&made.manifest);
            let is_known = !request.path.contains("sha256:") || request.path.ends_with(&digest);
            let answer = match is_known {
                true => reply(200, made.manifest.clone()).with("docker-content-digest", digest),
                false => reply(404, "{}"),
            };
            if request.method == "HEAD" { head(answer) } else { answer }
        }
    })
    .await
}

/// The requests for manifests and blobs since the last `before` requests: their methods and kinds.
fn spent(server: &Server, before: usize) -> Vec<String> {
    let kind = |request: &Request| {
        ["manifests", "blobs"].into_iter().find(|kind| request.path.contains(&format!("/{kind}/")))
    };
    let asked = server.asked();
    asked[before..]
        .iter()
        .filter_map(|request| kind(request).map(|kind| format!("{} {kind}", request.method)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_here_spends_no_manifest_and_no_blob() {
    let made = Arc::new(Mutex::new(Made::new("x", "amd64")));
    let (server, node) = (server(&made, |answer| answer).await, Node::new());
    let name = |end: &str| format!("{}/t{end}", server.address);
    let digest = digest_of(&made.lock().unwrap().manifest);
    let image = node.pull(&name(":1")).await.unwrap();
    assert_eq!(spent(&server, 0), ["GET manifests", "GET blobs", "GET blobs"]);
    for end in [":1", ":2", &format!("@{digest}"), ":1"] {
        let before = server.asked().len();
        assert_eq!(node.pull(&name(end)).await.unwrap().id, image.id);
        assert_eq!(spent(&server, before), ["HEAD manifests"], "{end}");
    }
    let listed = node.images.find(&image.id).unwrap();
    assert_eq!(listed.repo_tags, [name(":1"), name(":2")]);
    assert_eq!(listed.repo_digests, [name(&format!("@{digest}"))]);

    // The tag moves.
    *made.lock().unwrap() = Made::new("y", "amd64");
    let moved = node.pull(&name(":1")).await.unwrap();
    assert_ne!(moved.id, image.id);
    assert_eq!(node.images.find(&name(":1")).unwrap().id, moved.id);
    assert_eq!(node.images.find(&image.id).unwrap().repo_tags, [name(":2")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_lost_a_file_is_pulled_again() {
    let made = Arc::new(Mutex::new(Made::new("x", "amd64")));
    let (server, node) = (server(&made, |answer| answer).await, Node::new());
    let reference = format!("{}/t:1", server.address);
    let image = node.pull(&reference).await.unwrap();
    let hex = image.id.trim_start_matches("sha256:");
    fs::remove_file(node.directory.path().join(format!("images/{hex}.erofs"))).unwrap();
    node.pull(&reference).await.unwrap();
    node.images.open_image(&image.id).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_says_no_digest_is_asked_for_the_manifest() {
    let heads: [Head; 6] = [
        |_| reply(404, ""),
        |_| reply(405, ""),
        |_| reply(500, ""),
        |answer| Reply { headers: Vec::new(), ..answer },
        |answer| Reply { headers: vec![("docker-content-digest", "sha256:1".into())], ..answer },
        // It is of another image.
        |answer| Reply { headers: vec![("docker-content-digest", digest_of(b"other"))], ..answer },
    ];
    for head in heads {
        let made = Arc::new(Mutex::new(Made::new("x", "amd64")));
        let (server, node) = (server(&made, head).await, Node::new());
        let reference = format!("{}/t:1", server.address);
        let image = node.pull(&reference).await.unwrap();
        let before = server.asked().len();
        assert_eq!(node.pull(&reference).await.unwrap(), image);
        assert_eq!(spent(&server, before), ["HEAD manifests", "GET manifests", "GET blobs"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_an_image_that_is_here_without_access() {
    let made = Made::new("x", "amd64");
    let server = Server::start(|_| {
        move |request: &Request| match request.header("authorization") {
            Some("Bearer abc") => made.answer(request).unwrap_or(reply(200, "{}")),
            _ => reply(401, "{}"),
        }
    })
    .await;
    let node = Node::new();
    let reference = format!("{}/t:1", server.address);
    let token = runtime_image::Credentials::RegistryToken("abc".to_owned());
    let image = node.images.pull(&reference, Some(token)).await.unwrap();
    for name in [&reference, &image.repo_digests[0]] {
        let refused = node.pull(name).await.unwrap_err();
        assert_eq!(refused.kind(), ImageErrorKind::Unauthenticated, "{refused}");
    }
}
