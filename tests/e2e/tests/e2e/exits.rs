//! Exit codes, reasons and signals.

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};

async fn exit_of(client: &mut Client, pod: &str, image: &str, name: &str, line: &str) -> (i32, String) {
    let container = client.run(pod, spec::shell(name, image, line)).await.unwrap();
    let status = client.wait(&container).await.unwrap();
    (status.exit_code, status.reason)
}

#[tokio::test]
async fn exit_codes_come_out_as_the_process_gave_them() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("codes", host.dir())).await.unwrap();
    for (name, line, code, reason) in [
        ("zero", "exit 0", 0, "Completed"),
        ("one", "exit 1", 1, "Error"),
        ("not-executable", "/etc/passwd", 126, "Error"),
        ("not-found", "no-such-command", 127, "Error"),
        // Process 1 of a PID namespace cannot be signalled from inside unless it has a handler; a child can.
        ("killed", "sh -c 'kill -KILL $$'; exit $?", 137, "Error"),
        ("terminated", "sh -c 'kill -TERM $$'; exit $?", 143, "Error"),
    ] {
        let found = exit_of(&mut client, &pod, &image, name, line).await;
        assert_eq!(found, (code, reason.to_owned()), "{name}");
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn an_end_by_a_real_time_signal_is_reported() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("real-time", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    // The last signal of all, and the first one left to programs by a C library.
    for (signal, code) in [(64, 192), (34, 162)] {
        let line = format!("kill -{signal} $$");
        let ended = client.exec(&container, &["sh", "-c", &line], 60).await.unwrap();
        assert_eq!(ended.exit_code, code, "{ended:?}");
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_container_beyond_its_memory_limit_is_oom_killed() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("oom", host.dir())).await.unwrap();
    let eater =
        spec::container("eater", &image, &["dd", "if=/dev/zero", "of=/dev/null", "bs=20M", "count=1"]);
    let container = client.run(&pod, spec::with_memory(eater, 15 << 20)).await.unwrap();
    let status = client.wait(&container).await.unwrap();
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"), "{}", status.message);
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn stop_asks_first_and_kills_after_the_grace_period() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("grace", host.dir())).await.unwrap();
    let polite = "trap 'exit 0' TERM; touch /tmp/ready; while :; do sleep 0.1; done";
    let deaf = "trap '' TERM; touch /tmp/ready; while :; do sleep 0.1; done";
    for (name, line, grace, code) in [("polite", polite, 600, 0), ("deaf", deaf, 2, 137)] {
        let container = client.run(&pod, spec::shell(name, &image, line)).await.unwrap();
        client.sh(&container, "while [ ! -e /tmp/ready ]; do sleep 0.1; done").await.unwrap();
        client.stop(&container, grace).await.unwrap();
        let status = client.status(&container).await.unwrap();
        assert_eq!((status.state(), status.exit_code), (v1::ContainerState::ContainerExited, code), "{name}");
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn the_images_stop_signal_counts() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&crate::images::with_stop_signal(&host, "SIGUSR1").await).await.unwrap();
    let pod = client.run_pod(&spec::pod("signal", host.dir())).await.unwrap();
    let line = "trap 'exit 42' USR1; touch /tmp/ready; while :; do sleep 0.1; done";
    let container = client.run(&pod, spec::shell("main", &image, line)).await.unwrap();
    client.sh(&container, "while [ ! -e /tmp/ready ]; do sleep 0.1; done").await.unwrap();
    client.stop(&container, 600).await.unwrap();
    assert_eq!(client.status(&container).await.unwrap().exit_code, 42);
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn exec_sync_gives_output_and_code_and_ends_at_its_time_out() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("exec", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    let answer = client.exec(&container, &["sh", "-c", "echo out; echo err >&2; exit 3"], 60).await.unwrap();
    assert_eq!((answer.stdout, answer.stderr, answer.exit_code), (b"out\n".to_vec(), b"err\n".to_vec(), 3));
    let late = client.exec(&container, &["sleep", "4321"], 1).await.unwrap_err();
    assert_eq!(late.code(), tonic::Code::DeadlineExceeded, "{late}");
    assert_eq!(client.sh(&container, "ps | grep -c '[s]leep 4321'").await.unwrap(), "0\n");
    // Without a timeout, a command ends with its caller.
    let mut caller = host.client();
    let (left, cmd) = (container.clone(), ["sh", "-c", "echo begun >/tmp/begun; exec sleep 4321"]);
    let calling = tokio::spawn(async move { caller.exec(&left, &cmd, 0).await });
    client.prints(&container, "cat /tmp/begun 2>&1", "begun\n").await.unwrap();
    calling.abort();
    client.prints(&container, "ps | grep -c '[s]leep 4321'", "0\n").await.unwrap();
    client.stop(&container, 0).await.unwrap();
    let refused = client.exec(&container, &["true"], 10).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
