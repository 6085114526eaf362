//! Access to registries: tokens of callers and of registries, and busy hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::node::Node;
use crate::wire::{Made, Reply, Request, Server, reply};
use runtime_image::{Credentials, ImageError, ImageErrorKind};

fn reference(server: &Server) -> String {
    format!("{}/t:1", server.address)
}

/// A 401 naming a token service.
fn challenge(address: &str, more: &str) -> Reply {
    let value = format!("Bearer realm=\"http://{address}/token\",service=\"s\"{more}");
    reply(401, "{}").with("www-authenticate", value)
}

/// Serves the image to holders of this token, and tokens to requests with `proof`.
fn guarded<P: Fn(&Request) -> bool + Send + Sync>(
    address: &str,
    token: &'static str,
    proof: P,
) -> impl Fn(&Request) -> Reply + use<P> {
    let (made, address) = (Made::new("x", "amd64"), address.to_owned());
    move |request| match request.path.as_str() {
        path if path.starts_with("/token") && proof(request) => {
            reply(200, format!("{{\"token\":\"{token}\"}}"))
        }
        path if path.starts_with("/token") => reply(401, "who are you"),
        _ if request.header("authorization") != Some(&format!("Bearer {token}")) => challenge(&address, ""),
        _ => made.answer(request).unwrap_or(reply(200, "{}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_token_is_sent_as_it_is() {
    let server = Server::start(|address| guarded(address, "abc", |_| false)).await;
    let (node, name) = (Node::new(), reference(&server));
    let pull = |token: &str| {
        let credentials = Credentials::RegistryToken(token.to_owned());
        node.images.pull(&name, Some(credentials))
    };
    let refused = pull("wrong").await.unwrap_err();
    assert_eq!(refused.kind(), ImageErrorKind::Unauthenticated, "{refused:?}");
    pull("abc").await.unwrap();
    assert!(server.paths().iter().all(|path| !path.starts_with("/token")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_token_is_exchanged_for_one_of_the_repository() {
    let form = "scope=repository%3At%3Apull&service=s&grant_type=refresh_token&refresh_token=id%26entity&client_id=podvisor";
    let server = Server::start(|address| {
        guarded(address, "abc", move |request| request.method == "POST" && request.body == form)
    })
    .await;
    let (node, name) = (Node::new(), reference(&server));
    let pull = |token: &str| {
        let credentials = Credentials::IdentityToken(token.to_owned());
        node.images.pull(&name, Some(credentials))
    };
    let refused = pull("another").await.unwrap_err();
    assert_eq!(refused.kind(), ImageErrorKind::Unauthenticated, "{refused:?}");
    pull("id&entity").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_may_ask_for_a_token_only_where_it_is_needed_and_anew_when_it_has_ended() {
    let given = Arc::new(AtomicUsize::new(0));
    let count = given.clone();
    let server = Server::start(|address| {
        let (made, address) = (Made::new("x", "amd64"), address.to_owned());
        move |request: &Request| {
            let now = count.load(Ordering::SeqCst);
            let right = Some(format!("Bearer {now}"));
            match request.path.as_str() {
                "/v2/" => reply(200, "{}"),
                "/token?scope=repository%3At%3Apull&scope=more&service=s" => reply(
                    200,
                    format!("{{\"access_token\":\"{}\"}}", count.fetch_add(1, Ordering::SeqCst) + 1),
                ),
                _ if now == 0 || request.header("authorization").map(str::to_owned) != right => {
                    challenge(&address, ",scope=\"more\"")
                }
                path => {
                    // The token was good for the manifest alone.
                    if path.contains("manifests") {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                    made.answer(request).unwrap()
                }
            }
        }
    })
    .await;
    Node::new().pull(&reference(&server)).await.unwrap();
    assert!(given.load(Ordering::SeqCst) >= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scope_of_the_bare_api_is_a_placeholder() {
    // As ghcr.io has it.
    let server = Server::start(|address| {
        let (made, address) = (Made::new("x", "amd64"), address.to_owned());
        move |request: &Request| match request.path.as_str() {
            "/token?scope=repository%3At%3Apull&service=s" => reply(200, r#"{"token":"abc"}"#),
            path if path.starts_with("/token") => reply(403, "denied"),
            "/v2/" => challenge(&address, ",scope=\"repository:user/image:pull\""),
            _ if request.header("authorization") != Some("Bearer abc") => challenge(&address, ""),
            _ => made.answer(request).unwrap_or(reply(200, "{}")),
        }
    })
    .await;
    Node::new().pull(&reference(&server)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_host_is_asked_again_and_not_without_end() {
    for (refusals, status) in [(3, 429), (3, 503), (3, 500), (4, 429), (4, 500)] {
        let server = Server::start(|_| {
            let (made, left) = (Made::new("x", "amd64"), AtomicUsize::new(refusals));
            move |request: &Request| {
                if !request.path.contains("manifests") {
                    return made.answer(request).unwrap_or(reply(200, "{}"));
                }
                let left = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                match left {
                    Ok(_) => reply(status, "slow down").with("retry-after", "0"),
                    Err(_) => made.answer(request).unwrap(),
                }
            }
        })
        .await;
        let pulled = Node::new().pull(&reference(&server)).await;
        let asked = server.paths().iter().filter(|path| path.contains("manifests")).count();
        assert_eq!(asked, 4, "{status}");
        match pulled {
            Ok(_) => assert_eq!(refusals, 3),
            Err(error) => assert!(refusals == 4 && error.kind() == ImageErrorKind::Unavailable, "{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_wants_to_be_left_alone_for_long_is() {
    let server = Server::start(|_| {
        |request: &Request| match request.path.as_str() {
            "/v2/" => reply(200, "{}"),
            _ => reply(429, "later").with("retry-after", "3600"),
        }
    })
    .await;
    let busy = Node::new().pull(&reference(&server)).await.unwrap_err();
    let hour = Some(Duration::from_secs(3600));
    assert!(matches!(&busy, ImageError::Busy { wait, .. } if *wait == hour), "{busy:?}");
    assert_eq!(server.asked().len(), 2);
}
