//! RPCs that are not about one pod, ids that are not there, and RPCs that this version does not have.

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

/// A call of Version in bytes, with this authority. A client library sends none that is not a host's.
fn version_call(authority: &str) -> Vec<u8> {
    let text = |head: u8, text: &str| [&[head, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    // Fields by HPACK's static table (RFC 7541, appendix A): POST, http, a path, the authority, a content type.
    let fields = [
        vec![0x83, 0x86],
        text(0x44, "/runtime.v1.RuntimeService/Version"),
        text(0x41, authority),
        text(0x5f, "application/grpc"),
        [text(0x40, "te"), text(8, "trailers")[1..].to_vec()].concat(),
    ];
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    [preface, frame(4, 0, 0, &[]), frame(1, 4, 1, &fields.concat()), frame(0, 1, 1, &[0; 5])].concat()
}

#[tokio::test]
async fn a_client_whose_authority_is_the_path_of_the_socket_is_served() {
    let Some(host) = Host::start().await else { return };
    // As gRPC's C core has it, and so Python, C++, Ruby and PHP.
    let authority = host.daemon.socket().display().to_string().replace('/', "%2F");
    let mut stream = UnixStream::connect(host.daemon.socket()).await.unwrap();
    stream.write_all(&version_call(&authority)).await.unwrap();
    let first = loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut payload).await.unwrap();
        assert_ne!(head[3], 3, "the call is reset: {payload:?}");
        if head[3] == 1 {
            break payload[0];
        }
    };
    // The field for status 200.
    assert_eq!(first, 0x88);
    host.stop().await.unwrap();
}
