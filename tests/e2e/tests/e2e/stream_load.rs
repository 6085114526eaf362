//! Streams under load: many commands, much output, and clients that do not behave.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use proto_cri::v1;
use sha1::{Digest, Sha1};
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};

use crate::session::{Session, attach, exec_url};

/// Set for the full sizes, which take a software node many minutes.
const SOAK_VARIABLE: &str = "PODVISOR_E2E_SOAK";

/// Commands one after the other, and those before it is looked what they leave.
const SHORT: usize = 200;
const WARM: usize = 60;
/// Commands at once.
const AT_ONCE: usize = 30;
/// Commands that end at once, and what each says.
const ABRUPT: usize = 100;
const ABRUPT_BYTES: usize = 1_000_000;

/// What may stay of a thousand commands' memory in processes that keep an allocator's reserves.
const AGENT_GROWTH_KIB: u64 = 1024;
const DAEMON_GROWTH_KIB: u64 = 8 * 1024;

/// Looks before something that takes a moment must have happened.
const LOOKS_MAX: usize = 200;
const PAUSE: Duration = Duration::from_millis(100);

/// The normal size, or the full one.
fn size(normal: usize, full: usize) -> usize {
    if std::env::var_os(SOAK_VARIABLE).is_some() { full } else { normal }
}

/// A running container, in a pod of its own.
async fn container(host: &Host, client: &mut Client, name: &str) -> (String, String) {
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod(name, host.dir())).await.unwrap();
    let id = client.run(&pod, spec::shell("main", &image, "sleep 100000")).await.unwrap();
    (pod, id)
}

/// Bytes in which a piece that is lost, doubled or moved shows: the period is a prime.
fn pattern() -> Vec<u8> {
    (0..65_521u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// What is there on both sides of a pod.
#[derive(Debug)]
struct Census {
    /// The agent's descriptors, the guest's processes, and the daemon's descriptors.
    counts: [usize; 3],
    agent_kib: u64,
    daemon_kib: u64,
}

impl Census {
    /// `watcher` sees the guest's own processes.
    async fn take(host: &Host, client: &mut Client, watcher: &str) -> Census {
        let line = "ls /proc/1/fd | wc -l; for p in /proc/[0-9]*; do readlink $p/exe; done 2>/dev/null | wc -l; \
                    grep VmRSS /proc/1/status | tr -dc 0-9";
        let seen = client.sh(watcher, line).await.unwrap();
        let seen: Vec<usize> = seen.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let daemon = format!("/proc/{}", host.daemon.pid());
        let descriptors = std::fs::read_dir(Path::new(&daemon).join("fd")).unwrap().count();
        let status = std::fs::read_to_string(Path::new(&daemon).join("status")).unwrap();
        let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        let daemon_kib = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
        Census { counts: [seen[0], seen[1], descriptors], agent_kib: seen[2] as u64, daemon_kib }
    }
}

#[tokio::test]
async fn short_commands_leave_no_process_descriptor_or_memory_behind() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let (pod, id) = container(&host, &mut client, "short").await;
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut config = spec::shell("watcher", &image, "sleep 100000");
    let context = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    context.namespace_options.as_mut().unwrap().pid = v1::NamespaceMode::Node.into();
    let added = vec!["SYS_PTRACE".to_owned()];
    context.capabilities = Some(v1::Capability { add_capabilities: added, ..Default::default() });
    let watcher = client.run(&pod, config).await.unwrap();

    let mut before = None;
    for number in 0..SHORT + WARM {
        if number == WARM {
            before = Some(Census::take(&host, &mut client, &watcher).await);
        }
        let said = format!("number {number}\n");
        let command = ["echo", "number", &number.to_string()];
        match number % 4 {
            // With a terminal, and with an input that nobody ends.
            0 => {
                let url = exec_url(&mut client, &id, &command, true, true).await;
                let mut session = Session::open(&url, &["stdin", "stdout", "resize"]).await;
                let status = session.end().await;
                assert_eq!(status["status"], "Success", "{status}");
                assert_eq!(session.text("stdout").replace('\r', ""), said);
            }
            1 => {
                let url = exec_url(&mut client, &id, &command, true, false).await;
                let mut session = Session::open(&url, &["stdin", "stdout", "stderr"]).await;
                let status = session.end().await;
                assert_eq!(status["status"], "Success", "{status}");
                assert_eq!(session.text("stdout"), said);
            }
            _ => assert_eq!(client.exec(&id, &command, 600).await.unwrap().stdout, said.as_bytes()),
        }
    }
    let before = before.unwrap();
    let mut after = Census::take(&host, &mut client, &watcher).await;
    for _ in 0..LOOKS_MAX {
        if after.counts.iter().zip(before.counts).all(|(after, before)| *after <= before) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        after = Census::take(&host, &mut client, &watcher).await;
    }
    eprintln!("{SHORT} commands: before {before:?}, after {after:?}");
    assert!(
        after.counts.iter().zip(before.counts).all(|(after, before)| *after <= before),
        "{before:?} {after:?}"
    );
    assert!(after.agent_kib <= before.agent_kib + AGENT_GROWTH_KIB, "{before:?} {after:?}");
    assert!(after.daemon_kib <= before.daemon_kib + DAEMON_GROWTH_KIB, "{before:?} {after:?}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn many_commands_at_once_and_commands_that_end_at_once_lose_nothing() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let (pod, id) = container(&host, &mut client, "many").await;
    let commands = (0..AT_ONCE).map(|number| {
        let (mut client, id) = (client.clone(), id.clone());
        async move {
            let line = format!("cat; echo {number}; exit {number}");
            if number % 2 == 0 {
                let answer = client.exec(&id, &["sh", "-c", &line], 600).await.unwrap();
                return (answer.stdout, answer.exit_code.to_string());
            }
            let url = exec_url(&mut client, &id, &["sh", "-c", &line], true, false).await;
            let mut session = Session::open(&url, &["stdin", "stdout", "stderr"]).await;
            session.say("stdin", "", true).await;
            let status = session.end().await;
            let code = status["details"]["causes"][0]["message"].as_str().unwrap().to_owned();
            (session.said.remove("stdout").unwrap(), code)
        }
    });
    for (number, (said, code)) in join_all(commands).await.into_iter().enumerate() {
        assert_eq!((String::from_utf8(said).unwrap(), code), (format!("{number}\n"), number.to_string()));
    }

    let line = format!("head -c {ABRUPT_BYTES} /dev/zero; exit 3");
    for _ in 0..size(ABRUPT / 4, ABRUPT) {
        let url = exec_url(&mut client, &id, &["sh", "-c", &line], false, false).await;
        let mut session = Session::open(&url, &["stdout", "stderr"]).await;
        assert_eq!(session.end().await["details"]["causes"][0]["message"], "3");
        assert_eq!(session.said["stdout"].len(), ABRUPT_BYTES);
    }

    // An answer holds 16 MiB, and says where it was cut.
    let line = "head -c 20000000 /dev/zero; echo oops >&2; exit 4";
    let answer = client.exec(&id, &["sh", "-c", line], 600).await.unwrap();
    let said = String::from_utf8(answer.stdout).unwrap();
    assert!(
        said.len() > 14 << 20 && said.trim_start_matches('\0').starts_with("\n[podvisor: the output was cut")
    );
    assert_eq!((answer.stderr.as_slice(), answer.exit_code), (&b"oops\n"[..], 4));
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn much_goes_out_and_in_unchanged() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let (pod, id) = container(&host, &mut client, "much").await;
    let pattern = pattern();

    let url = exec_url(&mut client, &id, &["sh", "-c", "cat > /pattern"], true, false).await;
    let mut session = Session::open(&url, &["stdin", "stdout", "stderr"]).await;
    session.say("stdin", pattern.clone(), true).await;
    assert_eq!(session.end().await["status"], "Success");
    let out = size(32 << 20, 256 << 20);
    let line = format!("while cat /pattern 2>/dev/null; do :; done | head -c {out}");
    let url = exec_url(&mut client, &id, &["sh", "-c", &line], false, false).await;
    let mut session = Session::open(&url, &["stdout", "stderr"]).await;
    let mut expected = pattern.iter().cycle();
    let mut seen = 0;
    loop {
        let goes_on = session.step().await;
        if let Some(bytes) = session.said.get_mut("stdout") {
            assert!(bytes.iter().eq(expected.by_ref().take(bytes.len())), "after {seen} bytes");
            seen += bytes.len();
            bytes.clear();
        }
        if !goes_on {
            break;
        }
    }
    assert_eq!(seen, out);

    let input = size(16 << 20, 64 << 20);
    let url = exec_url(&mut client, &id, &["sha1sum"], true, false).await;
    let mut session = Session::open(&url, &["stdin", "stdout", "stderr"]).await;
    let (pattern, mut sum, mut left) = (Bytes::from(pattern), Sha1::new(), input);
    while left > 0 {
        let piece = pattern.slice(..left.min(pattern.len()));
        sum.update(&piece);
        left -= piece.len();
        session.say("stdin", piece, left == 0).await;
    }
    assert_eq!(session.end().await["status"], "Success");
    let sum: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(session.text("stdout"), format!("{sum}  -\n"));
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn an_attached_client_that_does_not_read_stops_neither_the_log_nor_another() {
    const PIECES: usize = 24;
    const PIECE_BYTES: usize = 1_000_000;
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("deaf", host.dir());
    let pod = client.run_pod(&config).await.unwrap();
    let line = format!(
        "read go; for i in $(seq {PIECES}); do head -c {PIECE_BYTES} /dev/zero; usleep 100000; done; \
         echo; echo end; read go"
    );
    let mut talker = spec::shell("talker", &image, &line);
    (talker.stdin, talker.stdin_once) = (true, true);
    let id = client.run(&pod, talker).await.unwrap();
    let mut deaf = attach(&mut client, &id, false).await;
    let mut other = attach(&mut client, &id, true).await;
    other.say("stdin", "go\n", false).await;
    let mut seen = 0;
    loop {
        assert!(other.step().await, "{}", other.text("error"));
        let bytes = other.said.entry("stdout").or_default();
        if bytes.ends_with(b"end\n") {
            seen += bytes.len();
            break;
        }
        let keep = bytes.len().saturating_sub(4);
        seen += keep;
        bytes.drain(..keep);
    }
    assert_eq!(seen, PIECES * PIECE_BYTES + "\nend\n".len());
    other.say("stdin", "", true).await;
    assert_eq!(client.wait(&id).await.unwrap().exit_code, 1);
    let log = std::fs::read(format!("{}/talker.log", config.log_directory)).unwrap();
    assert_eq!(log.iter().filter(|byte| **byte == 0).count(), PIECES * PIECE_BYTES);
    assert!(log.ends_with(b"stdout F end\n"));
    // It is told why it does not see all.
    let status = deaf.end().await;
    assert!(status["message"].as_str().unwrap().contains("keep up"), "{status}");
    assert!(deaf.said["stdout"].len() < PIECES * PIECE_BYTES);
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
