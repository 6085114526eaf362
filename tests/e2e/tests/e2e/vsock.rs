//! An unconfined container at the agent's own ports: it must never get an answer.

use proto_cri::v1;
use proto_cri::v1::security_profile::ProfileType;
use tests_e2e::{Host, spec};
use tests_registry::Layer;

use crate::programs::{self, call, elf, unless_negative};

/// The agent's ports, `port::RPC` and `port::STREAM` of `proto_agent`, and a message with an answer from
/// each: a ttrpc request for an unknown service, and a frame without a stream.
const PORTS: [(u32, &[u8]); 2] =
    [(1024, b"\0\0\0\x06\0\0\0\x01\x01\0\x0a\x01x\x12\x01y"), (1025, b"\0\0\0\0")];
/// The guest's own addresses: `VMADDR_CID_LOCAL`, and the number used in every guest.
const CIDS: [u32; 2] = [1, 3];

/// How a [`dialer`] ends.
pub(crate) const ANSWERED: u32 = 0;
const CONNECTED: u32 = 1;
const REFUSED: u32 = 2;
const NO_SOCKET: u32 = 3;

#[tokio::test]
async fn an_unconfined_container_cannot_dial_the_agent() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let (mut layers, config) = tests_registry::busybox_image().unwrap();
    let name = |cid: u32, port: u32| format!("dial-{cid}-{port}");
    let mut programs = Layer::builder();
    for cid in CIDS {
        for (port, message) in PORTS {
            programs = programs.file(&name(cid, port), 0o755, dialer(cid, port, message));
        }
    }
    layers.push(programs.build());
    host.registry.push_image("e2e/dialer", "latest", layers, config).await.unwrap();
    let image = client.pull(&host.image("e2e/dialer:latest")).await.unwrap();

    let pod = client.run_pod(&spec::pod("dialer", host.dir())).await.unwrap();
    let unconfined =
        v1::SecurityProfile { profile_type: ProfileType::Unconfined.into(), ..Default::default() };
    let mut container = spec::container("main", &image, &["sleep", "3600"]);
    container.linux.get_or_insert_default().security_context =
        Some(v1::LinuxContainerSecurityContext { seccomp: Some(unconfined), ..Default::default() });
    let container = client.run(&pod, container).await.unwrap();
    for cid in CIDS {
        for (port, _) in PORTS {
            let program = format!("/{}", name(cid, port));
            let ended = client.exec(&container, &[&program], 60).await.unwrap().exit_code;
            let expected = [CONNECTED, REFUSED].map(|code| i32::try_from(code).unwrap());
            assert!(expected.contains(&ended), "{program} ended with {ended}");
        }
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// A program connecting to a vsock port: it sends the message, and waits for a byte of an answer.
pub(crate) fn dialer(cid: u32, port: u32, message: &[u8]) -> Vec<u8> {
    // socket(2) returns the lowest free number, and the program only has standard streams.
    const SOCKET: u32 = 3;
    let code = |address: u32, text: u32, answer: u32| {
        let length = u32::try_from(message.len()).unwrap();
        let mut code = call(41, [40, 1, 0, 0]); // socket(AF_VSOCK, SOCK_STREAM, 0)
        code.extend(unless_negative(NO_SOCKET));
        code.extend(call(42, [SOCKET, address, 16, 0])); // connect
        code.extend(unless_negative(REFUSED));
        code.extend(call(44, [SOCKET, text, length, 0x4000])); // sendto(…, MSG_NOSIGNAL)
        code.extend(unless_negative(CONNECTED));
        code.extend(call(0, [SOCKET, answer, 64, 0])); // read
        code.extend(if_positive(ANSWERED));
        code.extend(call(60, [CONNECTED, 0, 0, 0])); // exit
        code
    };
    // The length does not depend on the arguments.
    let data = programs::behind(code(0, 0, 0).len());
    let text = data + 16;
    let answer = text + u32::try_from(message.len()).unwrap();
    let mut body = code(data, text, answer);
    // `struct sockaddr_vm` of include/uapi/linux/vm_sockets.h.
    body.extend([40u32, port, cid, 0].iter().flat_map(|word| word.to_le_bytes()));
    body.extend(message);
    body.extend([0; 64]);
    elf(&body)
}

/// Ends the program with this status, if the last call's result is positive.
fn if_positive(status: u32) -> Vec<u8> {
    programs::exit_behind(0x7e, status) // jle
}
