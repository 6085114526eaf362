//! Interactive clients of commands, containers and ports.

use runtime_spec::ExecSpec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{World, container, pod};
use crate::{AttachRequest, PodErrorKind, ProcessOutput};

fn request(words: &[&str], tty: bool, stdin: bool) -> ExecSpec {
    ExecSpec { command: words.iter().map(|&word| word.to_owned()).collect(), tty, stdin }
}

async fn all(mut output: ProcessOutput) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(piece) = output.next().await.unwrap() {
        bytes.extend_from_slice(&piece.into_bytes().unwrap());
    }
    bytes
}

#[tokio::test]
async fn a_commands_streams_are_its_clients() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    let streams = world.pods.exec(&id, request(&["echo", "hello"], false, true)).await.unwrap();
    let mut input = streams.input.unwrap();
    input.write(b"typed").await.unwrap();
    input.end().await.unwrap();
    assert_eq!(all(streams.stdout.unwrap()).await, b"hello");
    assert_eq!(all(streams.stderr.unwrap()).await, b"");
    assert_eq!(streams.end.wait().await.unwrap(), Some(0));
    assert_eq!(world.script.state().typed, b"typed[end]");
}

#[tokio::test]
async fn a_terminal_has_one_output_and_a_size_without_an_input_too() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    let streams = world.pods.exec(&id, request(&["echo", "x"], true, false)).await.unwrap();
    assert!(streams.stderr.is_none());
    let mut input = streams.input.unwrap();
    input.resize(80, 24).await.unwrap();
    // There is no input to end.
    input.end().await.unwrap();
    assert_eq!(world.script.state().typed, b"[80x24]");
    let plain = world.pods.exec(&id, request(&["echo", "x"], false, false)).await.unwrap();
    assert!(plain.input.is_none() && plain.stderr.is_some());
}

#[tokio::test]
async fn a_command_whose_client_has_gone_is_hung_up_on() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    let streams = world.pods.exec(&id, request(&["sleep", "4321"], false, false)).await.unwrap();
    streams.end.client_gone().await;
    assert_eq!(world.script.count("agent.signal 1"), 1);
    assert_eq!(world.script.count("agent.signal 9"), 0);
}

#[tokio::test]
async fn a_command_whose_streams_cannot_be_opened_is_killed() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    world.script.fail("agent.input");
    world.pods.exec(&id, request(&["sleep", "4321"], false, true)).await.unwrap_err();
    assert_eq!(world.script.count("agent.signal 9"), 1);
}

#[tokio::test]
async fn all_who_are_attached_see_the_output_beside_the_log_and_the_end() {
    let world = World::new().await;
    world.script.state().late = true;
    world.script.state().output = b"late words\n".to_vec();
    let (_, id) = world.with_container().await;
    let request = AttachRequest { stdout: true, stderr: true, ..AttachRequest::default() };
    let first = world.pods.attach(&id, request).await.unwrap();
    let second = world.pods.attach(&id, request).await.unwrap();
    world.script.vm().agent.end(&id, 0, false);
    assert_eq!(all(first.stdout.unwrap()).await, b"late words\n");
    assert_eq!(all(second.stdout.unwrap()).await, b"late words\n");
    assert_eq!(all(second.stderr.unwrap()).await, b"");
    assert_eq!(first.end.wait().await.unwrap(), None);
    // Leaving clients do not affect a container.
    second.end.client_gone().await;
    assert_eq!(world.script.count("agent.signal 1"), 0);
}

#[tokio::test]
async fn the_end_of_a_clients_input_is_the_containers_only_where_it_says_once() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let cases =
        [("many", false, false, &b"a"[..]), ("shell", true, true, b"aa"), ("once", true, false, b"aaa[end]")];
    for (name, once, tty, typed) in cases {
        let mut spec = container(name);
        (spec.stdin, spec.stdin_once, spec.tty) = (true, once, tty);
        let id = world.pods.create_container(&pod_id, spec).await.unwrap();
        world.pods.start_container(&id).await.unwrap();
        let request = AttachRequest { stdin: true, ..AttachRequest::default() };
        let mut input = world.pods.attach(&id, request).await.unwrap().input.unwrap();
        input.write(b"a").await.unwrap();
        input.end().await.unwrap();
        assert_eq!(world.script.state().typed, typed);
    }
}

#[tokio::test]
async fn an_attach_needs_a_running_container_and_an_input_that_it_has() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    let request = AttachRequest { stdin: true, ..AttachRequest::default() };
    let kind = |outcome: Result<crate::ProcessStreams, crate::PodError>| outcome.unwrap_err().kind();
    assert_eq!(kind(world.pods.attach(&id, request).await), PodErrorKind::InvalidArgument);
    // As `kubectl attach -it` does.
    let request = AttachRequest { stdin: true, stdout: true, stderr: true };
    let streams = world.pods.attach(&id, request).await.unwrap();
    assert!(streams.input.is_none() && streams.stdout.is_some() && streams.stderr.is_some());
    let created = world.pods.create_container(&pod_id, container("other")).await.unwrap();
    let request = AttachRequest { stdout: true, ..AttachRequest::default() };
    assert_eq!(kind(world.pods.attach(&created, request).await), PodErrorKind::FailedPrecondition);
    assert_eq!(kind(world.pods.attach("none", request).await), PodErrorKind::NotFound);
}

#[tokio::test]
async fn a_port_is_forwarded_each_way_to_its_end_and_a_refusal_is_reported() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let (mut client, ours) = tokio::io::duplex(64);
    let (pods, id) = (world.pods.clone(), pod_id.clone());
    let forwarding = tokio::spawn(async move { pods.forward(&id, 80, ours).await });
    client.write_all(b"hello").await.unwrap();
    client.shutdown().await.unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "hello");
    forwarding.await.unwrap().unwrap();
    let (_client, ours) = tokio::io::duplex(64);
    let error = world.pods.forward(&pod_id, 81, ours).await.unwrap_err();
    assert!(error.chain().contains("connection refused"), "{}", error.chain());
    world.pods.stop(&pod_id).await.unwrap();
    let (_client, ours) = tokio::io::duplex(64);
    let error = world.pods.forward(&pod_id, 80, ours).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::FailedPrecondition);
}
