//! Hosts sending a different part of a blob than requested, or not naming the part, and hosts sending a blob
//! in pieces.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::node::{Node, limits};
use crate::wire::{Made, Reply, Request, Server, reply};
use runtime_image::{ContentError, ImageError, Limits};

/// A host's reaction to a request for the bytes from an offset.
type Part = fn(&[u8], usize) -> Reply;

fn of(bytes: &[u8], from: usize, to: usize) -> Reply {
    let range = format!("bytes {from}-{}/{}", to - 1, bytes.len());
    reply(206, bytes[from..to].to_vec()).with("content-range", range)
}

/// The first requested byte.
fn first(request: &Request) -> Option<usize> {
    request.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

/// Serves an image. Its layer breaks off once after half of it, and `part` decides on the rest.
async fn server(part: Part) -> (Server, usize) {
    server_breaking(1, part).await
}

/// Serves an image. Its layer breaks off so many times after half of it, and `part` decides on the rest.
async fn server_breaking(times: usize, part: Part) -> (Server, usize) {
    let made = Made::new("x", "amd64");
    let length = made.blobs[1].len();
    let server = Server::start(|_| {
        let broken = AtomicUsize::new(0);
        move |request: &Request| {
            let answer = made.answer(request).unwrap_or(reply(200, "{}"));
            let bytes = answer.body.clone();
            match first(request) {
                Some(from) => part(&bytes, from),
                None if bytes == made.blobs[1] && broken.fetch_add(1, Ordering::SeqCst) < times => {
                    let mut half = answer;
                    half.body.truncate(length / 2);
                    half
                }
                None => answer,
            }
        }
    })
    .await;
    (server, length)
}

fn quick() -> Limits {
    Limits { retry_wait: std::time::Duration::from_millis(1), ..limits() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_begins_elsewhere_or_says_nothing_is_not_taken() {
    let parts: [(&str, Part, bool); 9] = [
        ("the part", |bytes, from| of(bytes, from, bytes.len()), false),
        ("the whole as a whole", |bytes, _| reply(200, bytes), false),
        ("the whole as a part", |bytes, _| of(bytes, 0, bytes.len()), false),
        ("more than the part", |bytes, from| of(bytes, from - 1, bytes.len()), false),
        ("less than the part", |bytes, from| of(bytes, from + 1, bytes.len()), true),
        ("nothing said", |bytes, from| reply(206, &bytes[from..]), true),
        ("nothing said, and the whole", |bytes, _| reply(206, bytes), true),
        ("another unit", |bytes, from| reply(206, &bytes[from..]).with("content-range", "lines 1-2/3"), true),
        (
            "several parts",
            |_, _| reply(206, "--x\r\n\r\n").with("content-type", "multipart/byteranges; boundary=x"),
            true,
        ),
    ];
    for (name, part, is_asked_anew) in parts {
        let (server, _) = server(part).await;
        let node = Node::with_limits(quick());
        node.pull(&format!("{}/t:1", server.address)).await.unwrap();
        let asked = server.asked();
        let ranges: Vec<_> =
            asked.iter().filter(|request| request.path.contains("/blobs/")).map(first).collect();
        // The config, the first half, the part, and the whole.
        assert_eq!(ranges.len(), if is_asked_anew { 4 } else { 3 }, "{name}: {ranges:?}");
        assert!(ranges[2].is_some(), "{name}: {ranges:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_may_send_a_blob_in_as_many_pieces_as_it_likes() {
    let (server, length) = server(|bytes, from| of(bytes, from, (from + 20).min(bytes.len()))).await;
    Node::with_limits(quick()).pull(&format!("{}/t:1", server.address)).await.unwrap();
    let pieces = server.asked().iter().filter(|request| first(request).is_some()).count();
    assert_eq!(pieces, (length - length / 2).div_ceil(20));
}

/// Promises the part, and sends nothing.
fn nothing(bytes: &[u8], from: usize) -> Reply {
    let length = bytes.len();
    reply(206, "").with("content-range", format!("bytes {from}-{}/{length}", length - 1))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_sends_nothing_of_a_part_is_asked_for_the_whole_once() {
    for (breaks, is_right_at_last) in [(1, true), (usize::MAX, false)] {
        let (server, length) = server_breaking(breaks, nothing).await;
        let node = Node::with_limits(quick());
        let reference = format!("{}/t:1", server.address);
        for pull in 0..3 {
            let pulled =
                tokio::time::timeout(std::time::Duration::from_secs(60), node.pull(&reference)).await;
            match pulled.expect("the pull ends") {
                Ok(_) => assert!(is_right_at_last && pull > 0),
                Err(ImageError::Content { error: ContentError::Truncated { expected, actual }, .. }) => {
                    assert_eq!((expected, actual), (length as u64, length as u64 / 2));
                    assert!(!is_right_at_last || pull == 0);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
