//! All forms of token requests and answers in use by registries, as accepted by current clients
//! (distribution, `spec/auth`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::node::Node;
use crate::wire::{Made, Reply, Request, Server, reply};
use runtime_image::{Credentials, ImageErrorKind};

/// The rights for pulling the test's image, in a query.
const SCOPE: &str = "scope=repository%3At%3Apull";

fn reference(server: &Server) -> String {
    format!("{}/t:1", server.address)
}

fn me(password: &str) -> Option<Credentials> {
    Some(Credentials::Password { username: "me".to_owned(), password: password.to_owned() })
}

/// A server requiring the token `abc` for the image. Its refusals have these headers, with its own token
/// address for `REALM`. `answers` answers requests to this address.
async fn guarded<F>(status: u16, headers: &'static [&str], answers: F) -> Server
where
    F: Fn(&Request) -> Reply + Send + Sync + 'static,
{
    Server::start(|address| {
        let (made, realm) = (Made::new("x", "amd64"), format!("http://{address}/token"));
        move |request: &Request| match request.path.as_str() {
            path if path.starts_with("/token") => answers(request),
            _ if request.header("authorization") == Some("Bearer abc") => {
                made.answer(request).unwrap_or(reply(200, "{}"))
            }
            _ => headers.iter().fold(reply(status, "{}"), |reply, header| {
                reply.with("www-authenticate", header.replace("REALM", &realm))
            }),
        }
    })
    .await
}

fn token(request: &Request) -> Reply {
    match request.path.contains(SCOPE) {
        true => reply(200, r#"{"token":"abc"}"#),
        false => reply(400, "no scope"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_challenge_is_answered() {
    let all: [&'static [&'static str]; 13] = [
        &["Bearer realm=\"REALM\""],
        &["BEARER  Realm = \"REALM\" , SERVICE=s"],
        &["bearer realm=REALM,service=s,scope=\"\""],
        &["Bearer realm=\"REALM\",service=\"a \\\"quoted\\\" one\",error=\"invalid_token\","],
        &["Bearer service=\"s\", realm=\"REALM\"; scope=\"repository:t:pull\""],
        &["Basic realm=\"x\", Bearer realm=\"REALM\",service=\"s\""],
        &["Bearer realm=\"REALM\",service=\"s\", Basic realm=\"x\""],
        &["Basic realm=\"x, Bearer realm=\\\"y\\\"\"", "Bearer realm=\"REALM\""],
        &["Negotiate", "Bearer realm=\"REALM\""],
        &["Negotiate YII4+/==, NTLM, Digest realm=\"x\", qop=\"auth,auth-int\", Bearer realm=\"REALM\""],
        &["Bearer realm=\"REALM?account=me\",service=\"s\""],
        &["Bearer", "Bearer realm=\"\"", "Bearer realm=\"REALM\""],
        &["Bearer \u{e9}=\"\u{e9}\", realm=\"REALM\", service=\"\u{e9}\""],
    ];
    for headers in all {
        let server = guarded(401, headers, token).await;
        let pulled = Node::new().pull(&reference(&server)).await;
        assert!(pulled.is_ok(), "{headers:?}: {pulled:?}, {:?}", server.paths());
        let asked = server.paths();
        let path = asked.iter().find(|path| path.starts_with("/token")).unwrap();
        if headers[0].contains("quoted") {
            assert_eq!(path, &format!("/token?{SCOPE}&service=a+%22quoted%22+one"));
        }
        if headers[0].contains("account") {
            assert_eq!(path, &format!("/token?account=me&{SCOPE}&service=s"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_challenge_that_nobody_can_answer_is_named() {
    for (headers, words) in [
        (&["Negotiate, NTLM"][..], "it wants Negotiate, NTLM"),
        (&["Bearer realm=\"/token\""], "\"/token\", is no address"),
        (&["Bearer realm=\"file:///etc/passwd\""], "\"file:///etc/passwd\", is no address"),
    ] {
        let server = guarded(401, headers, token).await;
        let refused = Node::new().images.pull(&reference(&server), me("secret")).await.unwrap_err();
        assert_eq!(refused.kind(), ImageErrorKind::Unauthenticated, "{refused:?}");
        assert!(refused.to_string().contains(words), "{refused}");
        assert!(server.asked().iter().all(|request| request.header("authorization").is_none()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_answer_is_a_token() {
    for answer in [
        r#"{"access_token":"abc"}"#,
        r#"{"token":"abc","access_token":"abc","expires_in":"60","issued_at":"now","scope":null}"#,
        r#"{"Token":"abc","expires_in":null,"refresh_token":{}}  trailing"#,
        r#"{"token":"old","token":"abc","expires_in":1e3}"#,
    ] {
        for status in [200, 201] {
            let server = guarded(401, &["Bearer realm=\"REALM\""], move |_| reply(status, answer)).await;
            Node::new().pull(&reference(&server)).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_go_the_other_way_where_a_service_has_only_one() {
    const BASIC: &str = "Basic bWU6c2VjcmV0"; // me:secret
    for (status, is_post) in [(400, true), (401, true), (404, true), (405, true), (404, false)] {
        let server = guarded(401, &["Bearer realm=\"REALM\",service=\"s\""], move |request| {
            let form = format!(
                "{SCOPE}&service=s&grant_type=password&username=me&password=secret&client_id=podvisor"
            );
            let right = match request.method.as_str() {
                "POST" => is_post && request.body == form,
                _ => !is_post && request.header("authorization") == Some(BASIC),
            };
            if right { reply(200, r#"{"access_token":"abc"}"#) } else { reply(status, "this way?") }
        })
        .await;
        Node::new().images.pull(&reference(&server), me("secret")).await.unwrap();
        let refused = Node::new().images.pull(&reference(&server), me("wrong")).await.unwrap_err();
        assert_eq!(refused.kind(), ImageErrorKind::Unauthenticated);
        assert!(refused.to_string().contains("this way?"), "{refused}");
    }
    // A service without OAuth2 gets an identity token as a password without a user.
    for status in [400, 401, 404, 405] {
        let server = guarded(401, &["Bearer realm=\"REALM\",service=\"s\""], move |request| {
            match (request.method.as_str(), request.header("authorization")) {
                ("GET", Some("Basic OmlkZW50aXR5")) => reply(200, r#"{"token":"abc"}"#),
                _ => reply(status, ""),
            }
        })
        .await;
        let identity = Credentials::IdentityToken("identity".to_owned());
        Node::new().images.pull(&reference(&server), Some(identity)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_does_not_suffice_is_replaced_by_one_for_what_was_refused() {
    for (status, error) in
        [(401, ""), (401, "invalid_token"), (401, "insufficient_scope"), (403, "insufficient_scope")]
    {
        let server = Server::start(|address| {
            let (made, realm) = (Made::new("x", "amd64"), format!("http://{address}/token"));
            move |request: &Request| {
                let challenge = |status, more: &str| {
                    reply(status, "{}").with("www-authenticate", format!("Bearer realm=\"{realm}\"{more}"))
                };
                let scoped = format!("/token?{SCOPE}&scope=repository%3Aup%2Fstream%3Apull");
                match (request.path.as_str(), request.header("authorization")) {
                    (path, _) if path == scoped => reply(200, r#"{"token":"abc"}"#),
                    (path, _) if path.starts_with("/token") => reply(200, r#"{"token":"first"}"#),
                    (_, None) => challenge(401, ""),
                    (_, Some("Bearer first")) => challenge(
                        status,
                        &format!(",scope=\"repository:t:pull repository:up/stream:pull\",error=\"{error}\""),
                    ),
                    _ => made.answer(request).unwrap_or(reply(200, "{}")),
                }
            }
        })
        .await;
        Node::new().pull(&reference(&server)).await.unwrap();
        let tokens = server.paths().iter().filter(|path| path.starts_with("/token")).count();
        assert_eq!(tokens, 2, "{status} {error}: {:?}", server.paths());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ends_in_mid_pull_is_replaced() {
    let given = Arc::new(AtomicUsize::new(0));
    let count = given.clone();
    let server = Server::start(|address| {
        let (made, realm) = (Made::new("x", "amd64"), format!("http://{address}/token"));
        move |request: &Request| {
            let now = count.load(Ordering::SeqCst);
            match request.path.as_str() {
                path if path.starts_with("/token") => {
                    reply(200, format!("{{\"token\":\"{}\"}}", count.fetch_add(1, Ordering::SeqCst) + 1))
                }
                path if request.header("authorization") == Some(&format!("Bearer {now}")) => {
                    // Each token is valid for one request other than `/v2/`.
                    count.fetch_add(usize::from(path != "/v2/"), Ordering::SeqCst);
                    made.answer(request).unwrap_or(reply(200, "{}"))
                }
                _ => reply(401, "{}").with("www-authenticate", format!("Bearer realm=\"{realm}\"")),
            }
        }
    })
    .await;
    Node::new().pull(&reference(&server)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_gives_strangers_nothing_does_not_keep_them_from_what_is_open() {
    let server = Server::start(|address| {
        let (made, realm) = (Made::new("x", "amd64"), format!("http://{address}/token"));
        move |request: &Request| match request.path.as_str() {
            path if path.starts_with("/token") => reply(401, "who are you"),
            "/v2/" => reply(401, "{}").with("www-authenticate", format!("Bearer realm=\"{realm}\"")),
            _ => made.answer(request).unwrap(),
        }
    })
    .await;
    Node::new().pull(&reference(&server)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_blobs_are_moved_to_gets_no_credentials_and_may_want_a_token_of_its_own() {
    let store = Server::start(|address| {
        let (made, realm) = (Made::new("x", "amd64"), format!("http://{address}/token"));
        move |request: &Request| match (request.path.as_str(), request.header("authorization")) {
            ("/token?scope=blobs", None) => reply(200, r#"{"token":"of the store"}"#),
            (path, _) if path.starts_with("/token") => reply(403, ""),
            (_, Some("Bearer of the store")) => made.answer(request).unwrap(),
            _ => reply(401, "").with("www-authenticate", format!("Bearer realm=\"{realm}\",scope=\"blobs\"")),
        }
    })
    .await;
    let place = store.address.clone();
    let server = Server::start(|address| {
        let (made, realm) = (Made::new("x", "amd64"), format!("http://{address}/token"));
        move |request: &Request| match (request.path.as_str(), request.header("authorization")) {
            (path, Some(proof)) if path.starts_with("/token") && proof.starts_with("Basic ") => {
                reply(200, r#"{"token":"abc"}"#)
            }
            (path, _) if path.starts_with("/token") => reply(401, ""),
            (path, Some("Bearer abc")) if path.contains("/blobs/") => {
                reply(307, "").with("location", format!("http://{place}{path}?signed=yes"))
            }
            (_, Some("Bearer abc")) => made.answer(request).unwrap_or(reply(200, "{}")),
            _ => reply(401, "").with("www-authenticate", format!("Bearer realm=\"{realm}\"")),
        }
    })
    .await;
    Node::new().images.pull(&reference(&server), me("secret")).await.unwrap();
    for request in store.asked() {
        assert!(matches!(request.header("authorization"), None | Some("Bearer of the store")), "{request:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_the_first_request_is_moved_to_gets_no_credentials() {
    for challenge in ["Bearer realm=\"REALM\",service=\"s\"", "Basic realm=\"x\""] {
        let place = Server::start(|address| {
            let challenge = challenge.replace("REALM", &format!("http://{address}/token"));
            move |request: &Request| match request.path.starts_with("/token") {
                true => reply(200, r#"{"token":"of the place"}"#),
                false => reply(401, "").with("www-authenticate", challenge.clone()),
            }
        })
        .await;
        let moved = format!("http://{}/v2/", place.address);
        let server = Server::start(|address| {
            let (made, realm) = (Made::new("x", "amd64"), format!("http://{address}/token"));
            move |request: &Request| match (request.path.as_str(), request.header("authorization")) {
                ("/v2/", _) => reply(307, "").with("location", moved.clone()),
                (path, Some("Basic bWU6c2VjcmV0")) if path.starts_with("/token") => token(request),
                (_, Some("Bearer abc")) => made.answer(request).unwrap(),
                (_, None) => reply(401, "{}").with("www-authenticate", format!("Bearer realm=\"{realm}\"")),
                _ => reply(400, "what is this"),
            }
        })
        .await;
        Node::new().images.pull(&reference(&server), me("secret")).await.unwrap();
        assert!(place.asked().iter().all(|request| request.header("authorization").is_none()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_wants_fewer_requests_for_tokens_is_asked_again() {
    for status in [429, 500, 503] {
        let asked = AtomicUsize::new(0);
        let server = guarded(401, &["Bearer realm=\"REALM\""], move |request| {
            match asked.fetch_add(1, Ordering::SeqCst) {
                0 => reply(status, "slow down").with("retry-after", "0"),
                _ => token(request),
            }
        })
        .await;
        Node::new().pull(&reference(&server)).await.unwrap();
    }
}
