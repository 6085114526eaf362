//! Chooses the protocol of a session from a client's request headers. Everything here is pure.
//!
//! The protocols' names are Kubernetes' (`remotecommand` and `portforward` of its streaming library).

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use hyper::{Method, StatusCode};
use sha1::{Digest, Sha1};

const SPDY: &str = "SPDY/3.1";
const PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");
const WEBSOCKET_PROTOCOL: HeaderName = HeaderName::from_static("sec-websocket-protocol");
const WEBSOCKET_KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
const WEBSOCKET_VERSION: HeaderName = HeaderName::from_static("sec-websocket-version");
const WEBSOCKET_ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");

/// The text appended by every server to the client's key (RFC 6455, section 1.3).
const WEBSOCKET_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The kind of a session. Each kind has its own protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Command,
    Forward,
}

/// A command's protocol over SPDY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The session ends with a JSON status, or with a plain text if false.
    pub(crate) json: bool,
    /// A terminal has a stream for its size.
    pub(crate) resize: bool,
}

/// A command's protocol over WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framing {
    /// The session ends with a JSON status, or with a plain text if false.
    pub(crate) json: bool,
    /// Channels as digits and contents in base64, in text messages.
    pub(crate) base64: bool,
    /// The client can end a channel.
    pub(crate) close: bool,
}

/// A protocol spoken by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    SpdyCommand(Version),
    SpdyForward,
    WebSocketCommand(Framing),
    /// The bytes of [`Protocol::SpdyForward`], in WebSocket messages.
    TunnelForward,
    /// Two channels for each port, as digits and in base64 if true.
    ChannelsForward {
        base64: bool,
    },
}

/// The chosen protocol, and the headers of the response 101.
#[derive(Debug)]
pub(crate) struct Agreement {
    pub(crate) protocol: Protocol,
    pub(crate) headers: HeaderMap,
}

/// Reason why no protocol was chosen, for the response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
    /// The acceptable protocols.
    pub(crate) accepted: Vec<&'static str>,
}

const OVER_SPDY: &[(&str, Protocol)] = &[
    ("v4.channel.k8s.io", Protocol::SpdyCommand(Version { json: true, resize: true })),
    ("v3.channel.k8s.io", Protocol::SpdyCommand(Version { json: false, resize: true })),
    ("v2.channel.k8s.io", Protocol::SpdyCommand(Version { json: false, resize: false })),
    ("channel.k8s.io", Protocol::SpdyCommand(Version { json: false, resize: false })),
];

const FORWARD_OVER_SPDY: &[(&str, Protocol)] = &[("portforward.k8s.io", Protocol::SpdyForward)];

const OVER_WEBSOCKET: &[(&str, Protocol)] = &[
    ("v5.channel.k8s.io", Protocol::WebSocketCommand(Framing { json: true, base64: false, close: true })),
    ("v4.channel.k8s.io", Protocol::WebSocketCommand(Framing { json: true, base64: false, close: false })),
    (
        "v4.base64.channel.k8s.io",
        Protocol::WebSocketCommand(Framing { json: true, base64: true, close: false }),
    ),
    ("channel.k8s.io", Protocol::WebSocketCommand(Framing { json: false, base64: false, close: false })),
    (
        "base64.channel.k8s.io",
        Protocol::WebSocketCommand(Framing { json: false, base64: true, close: false }),
    ),
];

/// The protocol of a command's client that names none: `channel.k8s.io`.
const UNNAMED_OVER_WEBSOCKET: Protocol =
    Protocol::WebSocketCommand(Framing { json: false, base64: false, close: false });
/// The protocol of a forward's client that names none: `v4.channel.k8s.io`.
const UNNAMED_FORWARD: Protocol = Protocol::ChannelsForward { base64: false };

const FORWARD_OVER_WEBSOCKET: &[(&str, Protocol)] = &[
    ("SPDY/3.1+portforward.k8s.io", Protocol::TunnelForward),
    ("v4.channel.k8s.io", Protocol::ChannelsForward { base64: false }),
    ("v4.base64.channel.k8s.io", Protocol::ChannelsForward { base64: true }),
];

/// Chooses the protocol for a request with these headers.
pub(crate) fn negotiate(
    method: &Method,
    headers: &HeaderMap,
    purpose: Purpose,
) -> Result<Agreement, Refusal> {
    if *method != Method::GET && *method != Method::POST {
        return Err(refusal(StatusCode::METHOD_NOT_ALLOWED, "use GET or POST"));
    }
    if !words(headers, &CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade")) {
        return Err(refusal(StatusCode::BAD_REQUEST, "the request asks for no upgrade"));
    }
    let asked = |name: &str| words(headers, &UPGRADE).any(|word| word.eq_ignore_ascii_case(name));
    if asked(SPDY) {
        let known = if purpose == Purpose::Command { OVER_SPDY } else { FORWARD_OVER_SPDY };
        let (name, protocol) = choose(headers, &PROTOCOL, known)?;
        return Ok(Agreement { protocol, headers: upgrade_headers([(UPGRADE, SPDY), (PROTOCOL, name)]) });
    }
    if asked("websocket") && *method == Method::GET {
        let accept = websocket_accept(headers)?;
        let named = words(headers, &WEBSOCKET_PROTOCOL).next().is_some();
        let (known, unnamed) = match purpose {
            Purpose::Command => (OVER_WEBSOCKET, UNNAMED_OVER_WEBSOCKET),
            Purpose::Forward => (FORWARD_OVER_WEBSOCKET, UNNAMED_FORWARD),
        };
        if !named {
            let mut headers = upgrade_headers([(UPGRADE, "websocket")]);
            headers.insert(WEBSOCKET_ACCEPT, accept);
            return Ok(Agreement { protocol: unnamed, headers });
        }
        let (name, protocol) = choose(headers, &WEBSOCKET_PROTOCOL, known)?;
        let mut headers = upgrade_headers([(UPGRADE, "websocket"), (WEBSOCKET_PROTOCOL, name)]);
        headers.insert(WEBSOCKET_ACCEPT, accept);
        return Ok(Agreement { protocol, headers });
    }
    Err(refusal(StatusCode::BAD_REQUEST, "upgrade to SPDY/3.1, or by GET to websocket"))
}

/// Returns the first of the client's protocols known to the server.
fn choose(
    headers: &HeaderMap,
    name: &HeaderName,
    known: &'static [(&'static str, Protocol)],
) -> Result<(&'static str, Protocol), Refusal> {
    let wished: Vec<_> = words(headers, name).collect();
    if wished.is_empty() {
        return Err(refusal(StatusCode::BAD_REQUEST, &format!("the header {name} is missing")));
    }
    let find = |wish: &&str| known.iter().find(|(known, _)| known == wish).copied();
    wished.iter().find_map(find).ok_or_else(|| {
        let accepted: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        let (wished, spoken) = (wished.join(", "), accepted.join(", "));
        let text = format!("{name} asks for {wished}; this session speaks {spoken}");
        Refusal { status: StatusCode::FORBIDDEN, text, accepted }
    })
}

/// Returns the answer to the client's key (RFC 6455, section 4.2).
fn websocket_accept(headers: &HeaderMap) -> Result<HeaderValue, Refusal> {
    const KEY_BYTES: usize = 16;
    let bad = |text| refusal(StatusCode::BAD_REQUEST, text);
    if headers.get(WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(bad("Sec-WebSocket-Version is not 13"));
    }
    let key = headers.get(WEBSOCKET_KEY).ok_or_else(|| bad("Sec-WebSocket-Key is missing"))?.as_bytes();
    let decoded = BASE64.decode(key);
    if decoded.is_ok_and(|key| key.len() == KEY_BYTES) {
        let digest = Sha1::new().chain_update(key).chain_update(WEBSOCKET_GUID).finalize();
        let accept = BASE64.encode(digest);
        return HeaderValue::try_from(accept).map_err(|_| bad("Sec-WebSocket-Key is not valid"));
    }
    Err(bad("Sec-WebSocket-Key is not 16 bytes in base64"))
}

fn upgrade_headers<const N: usize>(pairs: [(HeaderName, &'static str); N]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.extend(pairs.map(|(name, value)| (name, HeaderValue::from_static(value))));
    headers
}

fn refusal(status: StatusCode, text: &str) -> Refusal {
    Refusal { status, text: text.to_owned(), accepted: Vec::new() }
}

impl Refusal {
    /// Returns headers listing the accepted protocols.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in &self.accepted {
            headers.append(ACCEPTED, HeaderValue::from_static(name));
        }
        headers
    }
}

/// Returns a header's words, from repeated headers or separated by commas.
fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let texts = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let parse = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let mut headers = HeaderMap::new();
        pairs.iter().map(parse).for_each(|(name, value)| _ = headers.append(name, value));
        headers
    }

    fn spdy(protocols: &'static str) -> HeaderMap {
        headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "spdy/3.1"),
            ("x-stream-protocol-version", protocols),
        ])
    }

    fn websocket(protocols: &'static str) -> HeaderMap {
        headers(&[
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", protocols),
        ])
    }

    #[test]
    fn the_first_protocol_of_the_client_that_is_known_is_spoken() {
        let wishes = spdy("v5.channel.k8s.io, v4.channel.k8s.io,channel.k8s.io");
        let agreed = negotiate(&Method::POST, &wishes, Purpose::Command).unwrap();
        assert_eq!(agreed.protocol, Protocol::SpdyCommand(Version { json: true, resize: true }));
        assert_eq!(agreed.headers[PROTOCOL], "v4.channel.k8s.io");
        assert_eq!(agreed.headers[UPGRADE], "SPDY/3.1");
    }

    #[test]
    fn protocols_may_come_in_headers_of_their_own() {
        let mut wishes = spdy("v9");
        wishes.append(PROTOCOL, HeaderValue::from_static("v2.channel.k8s.io"));
        let agreed = negotiate(&Method::GET, &wishes, Purpose::Command).unwrap();
        assert_eq!(agreed.protocol, Protocol::SpdyCommand(Version { json: false, resize: false }));
    }

    #[test]
    fn the_websocket_key_is_answered_as_the_rfc_s_example_has_it() {
        let agreed = negotiate(&Method::GET, &websocket("v5.channel.k8s.io"), Purpose::Command).unwrap();
        assert_eq!(agreed.headers[WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_websocket_without_a_protocol_speaks_the_first_one() {
        let agreed = negotiate(&Method::GET, &websocket(""), Purpose::Command).unwrap();
        let first = negotiate(&Method::GET, &websocket("channel.k8s.io"), Purpose::Command).unwrap();
        assert_eq!(agreed.protocol, first.protocol);
        assert!(!agreed.headers.contains_key(WEBSOCKET_PROTOCOL));
    }

    #[test]
    fn a_forward_speaks_spdy_bare_or_tunnelled_or_channels() {
        let bare = negotiate(&Method::POST, &spdy("portforward.k8s.io"), Purpose::Forward).unwrap();
        assert_eq!(bare.protocol, Protocol::SpdyForward);
        let tunnel = websocket("SPDY/3.1+portforward.k8s.io");
        assert_eq!(
            negotiate(&Method::GET, &tunnel, Purpose::Forward).unwrap().protocol,
            Protocol::TunnelForward
        );
        for (name, base64) in [("", false), ("v4.channel.k8s.io", false), ("v4.base64.channel.k8s.io", true)]
        {
            let channels = negotiate(&Method::GET, &websocket(name), Purpose::Forward).unwrap();
            assert_eq!(channels.protocol, Protocol::ChannelsForward { base64 });
        }
    }

    #[test]
    fn a_response_says_why_a_request_cannot_be_served() {
        let status =
            |method, headers: &HeaderMap, purpose| negotiate(method, headers, purpose).unwrap_err().status;
        let none = HeaderMap::new();
        assert_eq!(status(&Method::PUT, &none, Purpose::Command), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(status(&Method::GET, &none, Purpose::Command), StatusCode::BAD_REQUEST);
        assert_eq!(status(&Method::POST, &spdy(""), Purpose::Command), StatusCode::BAD_REQUEST);
        assert_eq!(
            status(&Method::POST, &websocket("v5.channel.k8s.io"), Purpose::Command),
            StatusCode::BAD_REQUEST
        );
        let refused = negotiate(&Method::POST, &spdy("v4.channel.k8s.io"), Purpose::Forward).unwrap_err();
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        assert_eq!(refused.headers()[ACCEPTED], "portforward.k8s.io");
        let mut no_key = websocket("v5.channel.k8s.io");
        no_key.insert(WEBSOCKET_KEY, HeaderValue::from_static("c2hvcnQ="));
        assert_eq!(status(&Method::GET, &no_key, Purpose::Command), StatusCode::BAD_REQUEST);
    }
}
