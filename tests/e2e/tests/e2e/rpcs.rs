//! RPCs without a pod, unknown ids, and RPCs missing in this version.

use std::path::Path;

use proto_cri::v1;
use tests_e2e::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tonic::Code;

#[tokio::test]
async fn version_status_and_image_file_system_answer_what_a_kubelet_needs() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let version = client.runtime.version(v1::VersionRequest::default()).await.unwrap().into_inner();
    assert_eq!((version.runtime_name.as_str(), version.runtime_api_version.as_str()), ("podvisor", "v1"));
    let status = client.runtime.status(v1::StatusRequest { verbose: true }).await.unwrap().into_inner();
    let conditions = status.status.unwrap().conditions;
    for name in ["RuntimeReady", "NetworkReady"] {
        let condition = conditions.iter().find(|condition| condition.r#type == name).unwrap();
        assert!(condition.status, "{condition:?}");
    }
    let names: Vec<_> = status.runtime_handlers.iter().map(|handler| handler.name.as_str()).collect();
    assert_eq!(names, ["", "podvisor"]);
    let usage = client.images.image_fs_info(v1::ImageFsInfoRequest::default()).await.unwrap().into_inner();
    let mountpoint = &usage.image_filesystems[0].fs_id.as_ref().unwrap().mountpoint;
    assert!(std::path::Path::new(mountpoint).is_dir(), "{mountpoint}");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn the_network_is_not_ready_without_a_configuration_and_says_why() {
    let Some(host) = Host::start().await else { return };
    std::fs::remove_file(host.network.conf_dir.join("10-test.conflist")).unwrap();
    let status = host.client().runtime.status(v1::StatusRequest::default()).await.unwrap().into_inner();
    let conditions = status.status.unwrap().conditions;
    let network = conditions.iter().find(|condition| condition.r#type == "NetworkReady").unwrap();
    assert!(
        !network.status && network.message.contains(host.network.conf_dir.to_str().unwrap()),
        "{network:?}"
    );
    host.stop().await.unwrap();
}

#[tokio::test]
async fn ids_that_are_not_there_are_not_found_or_already_done() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    assert_eq!(client.pod_status("none").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.status("none").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.start("none").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.exec("none", &["true"], 1).await.unwrap_err().code(), Code::NotFound);
    client.stop("none", 0).await.unwrap();
    client.remove("none").await.unwrap();
    client.stop_pod("none").await.unwrap();
    client.remove_pod("none").await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn an_rpc_that_is_not_there_is_unimplemented_by_name() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let error =
        client.runtime.checkpoint_container(v1::CheckpointContainerRequest::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().contains("CheckpointContainer"), "{error}");
    host.stop().await.unwrap();
}

/// An HTTP/2 frame of stream `number` (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, number: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0, length[0], length[1], kind, flags, 0, 0, 0, number], payload].concat()
}

/// A field with a name of HPACK's static table (RFC 7541, appendix A), or with a new one.
fn field(index: u8, name: &str, value: &[u8], is_huffman: bool) -> Vec<u8> {
    // Seven bits at a time, the lowest first.
    let bits = |length: usize, shift: u32| u8::try_from(length >> shift & 0x7f).unwrap();
    let length = |length: usize| match length.checked_sub(127) {
        None => vec![bits(length, 0)],
        Some(more) => vec![127, bits(more, 0) | 0x80, bits(more, 7) | 0x80, bits(more, 14)],
    };
    let mut of_value = length(value.len());
    of_value[0] |= if is_huffman { 0x80 } else { 0 };
    let of_name =
        if name.is_empty() { Vec::new() } else { [length(name.len()), name.as_bytes().to_vec()].concat() };
    [vec![0x40 | index], of_name, of_value, value.to_vec()].concat()
}

/// A call of Version in bytes, with these fields beside the required ones. A client library only sends an
/// authority in the form of a host.
fn version_call(fields: &[Vec<u8>], message: &[u8]) -> Vec<u8> {
    // POST, http, a path; a content type.
    let first = [vec![0x83, 0x86], field(4, "", b"/runtime.v1.RuntimeService/Version", false)].concat();
    let last = [field(0x1f, "", b"application/grpc", false), field(0, "te", b"trailers", false)].concat();
    let block = [first, fields.concat(), last].concat();
    let mut pieces: Vec<Vec<u8>> = block.chunks(16_000).map(<[u8]>::to_vec).collect();
    let (last, first) = (pieces.len() - 1, pieces.remove(0));
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let end = |number| if number == last { 4 } else { 0 };
    let continued = pieces.iter().enumerate().map(|(number, piece)| frame(9, end(number + 1), 1, piece));
    let continued: Vec<u8> = continued.flatten().collect();
    [preface, frame(4, 0, 0, &[]), frame(1, end(0), 1, &first), continued, frame(0, 1, 1, message)].concat()
}

/// Sends a call, and reads the first byte of its answer's fields (a status) and the bytes of its message.
async fn answer(socket: &Path, call: &[u8]) -> (u8, usize) {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(call).await.unwrap();
    let (mut first, mut bytes) = (None, 0);
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut payload).await.unwrap();
        match head[3] {
            3 | 7 => panic!("the call is reset: {payload:?}"),
            0 => bytes += payload.len(),
            1 => drop(first.get_or_insert(payload[0])),
            _ => {}
        }
        if head[4] & 1 != 0 && head[3] < 2 {
            return (first.unwrap(), bytes);
        }
    }
}

#[tokio::test]
async fn a_client_whose_authority_is_the_path_of_the_socket_is_served() {
    let Some(host) = Host::start().await else { return };
    let path = host.daemon.socket().display().to_string();
    // As gRPC's C core has it, and so Python, C++, Ruby and PHP; as old clients in Go do; and as new ones in
    // Go write it in Huffman's code ("%2Frun%2Fpodvisor%2Fpodvisor.sock").
    let huffman = [
        0x54, 0x58, 0x6c, 0xb6, 0xa5, 0x45, 0x86, 0xb3, 0xc9, 0xdc, 0xc8, 0x3d, 0x8a, 0x8b, 0x0d, 0x67, 0x93,
        0xb9, 0x90, 0x7b, 0x17, 0x41, 0xc9, 0xd7,
    ];
    for authority in [
        field(0, ":authority", path.replace('/', "%2F").as_bytes(), false),
        field(1, "", path.replace('/', "%2F").as_bytes(), false),
        field(1, "", path.as_bytes(), false),
        field(1, "", &huffman, true),
    ] {
        // 0x88 is the field for status 200.
        let (status, bytes) = answer(host.daemon.socket(), &version_call(&[authority], &[0; 5])).await;
        assert!(status == 0x88 && bytes > 5, "{status} {bytes}");
    }
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_call_may_be_compressed_and_have_long_metadata() {
    let Some(host) = Host::start().await else { return };
    // An empty message by gzip.
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let message = [&[1, 0, 0, 0, 20][..], &gzip].concat();
    let encoding = field(0, "grpc-encoding", b"gzip", false);
    let (status, bytes) = answer(host.daemon.socket(), &version_call(&[encoding], &message)).await;
    assert!(status == 0x88 && bytes > 5, "{status} {bytes}");
    let long = field(0, "x-long", &[b'x'; 300_000], false);
    let (status, bytes) = answer(host.daemon.socket(), &version_call(&[long], &[0; 5])).await;
    assert!(status == 0x88 && bytes > 5, "{status} {bytes}");
    host.stop().await.unwrap();
}
