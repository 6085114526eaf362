//! Streams under load: many commands, much output, and misbehaving clients.

use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use tests_e2e::client::Client;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};

use crate::load::{container, size, status_kib, watcher};
use crate::session::{Session, attach, exec_url};

// Each has three sizes: normal, full, soak.

/// Short commands in sequence. The census is taken after the first [`WARM`] of them.
const SHORT: [usize; 3] = [60, 200, 5000];
const WARM: [usize; 3] = [20, 60, 60];
/// Commands at once.
const AT_ONCE: usize = 30;
/// Commands ending at once, and the bytes printed by each.
const ABRUPT: [usize; 3] = [25, 100, 100];
const ABRUPT_BYTES: usize = 1_000_000;

/// Length of a silent session.
const SILENCE_SECONDS: [usize; 3] = [10, 10, 600];

/// Memory growth after a thousand commands, in processes with an allocator's reserves.
const AGENT_GROWTH_KIB: u64 = 1024;
const DAEMON_GROWTH_KIB: u64 = 8 * 1024;

/// The processes, descriptors and memory on both sides of a pod.
#[derive(Debug)]
struct Census {
    /// The agent's descriptors, the guest's processes, and the daemon's descriptors.
    counts: [usize; 3],
    agent_kib: u64,
    daemon_kib: u64,
}

impl Census {
    /// Takes the census. The container `watcher` sees the guest's own processes.
    async fn take(host: &Host, client: &mut Client, watcher: &str) -> Census {
        let line = "ls /proc/1/fd | wc -l; for p in /proc/[0-9]*; do readlink $p/exe; done 2>/dev/null | wc -l; \
                    grep VmRSS /proc/1/status | tr -dc 0-9";
        let seen = client.sh(watcher, line).await.unwrap();
        let seen: Vec<usize> = seen.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let daemon = format!("/proc/{}", host.daemon.pid());
        let descriptors = std::fs::read_dir(Path::new(&daemon).join("fd")).unwrap().count();
        let status = std::fs::read_to_string(Path::new(&daemon).join("status")).unwrap();
        let daemon_kib = status_kib(&status, "VmRSS");
        Census { counts: [seen[0], seen[1], descriptors], agent_kib: seen[2] as u64, daemon_kib }
    }
}

#[tokio::test]
async fn short_commands_leave_no_process_descriptor_or_memory_behind() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let (pod, id) = container(&host, &mut client, "short").await;
    let watcher = watcher(&host, &mut client, &pod).await;

    let mut before = None;
    let (short, warm) = (size(SHORT), size(WARM));
    for number in 0..short + warm {
        if number == warm {
            before = Some(Census::take(&host, &mut client, &watcher).await);
        }
        let said = format!("number {number}\n");
        let command = ["echo", "number", &number.to_string()];
        match number % 4 {
            // With a terminal, and with an input without end.
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
    let after =
        until_seen(format!("no more to be there than before {short} commands, {before:?}"), async || {
            let now = Census::take(&host, &mut client, &watcher).await;
            let no_more = now.counts.iter().zip(before.counts).all(|(now, before)| *now <= before);
            if no_more { Ok(now) } else { Err(now) }
        });
    let after = after.await;
    eprintln!("{short} commands: before {before:?}, after {after:?}");
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
    for _ in 0..size(ABRUPT) {
        let url = exec_url(&mut client, &id, &["sh", "-c", &line], false, false).await;
        let mut session = Session::open(&url, &["stdout", "stderr"]).await;
        assert_eq!(session.end().await["details"]["causes"][0]["message"], "3");
        assert_eq!(session.said["stdout"].len(), ABRUPT_BYTES);
    }

    // An answer holds 16 MiB, and names the place of the cut.
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
    // The client gets the reason for its missing output.
    let status = deaf.end().await;
    assert!(status["message"].as_str().unwrap().contains("keep up"), "{status}");
    assert!(deaf.said["stdout"].len() < PIECES * PIECE_BYTES);
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn streams_survive_silence_and_pods_that_come_and_go() {
    const OTHERS: usize = 3;
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let (pod, id) = container(&host, &mut client, "steady").await;
    let url = exec_url(&mut client, &id, &["sh"], true, true).await;
    let mut idle = Session::open(&url, &["stdin", "stdout", "resize"]).await;
    idle.until("# ").await;
    let silent_since = tokio::time::Instant::now();

    // A command without pauses, while others begin and end.
    let line = "number=0; until [ -e /stop ]; do echo $number; number=$((number + 1)); done";
    let url = exec_url(&mut client, &id, &["sh", "-c", line], false, false).await;
    let mut busy = Session::open(&url, &["stdout", "stderr"]).await;
    let counting = tokio::spawn(async move {
        let status = busy.end().await;
        (status["status"] == "Success", busy.text("stdout"))
    });
    for other in 0..OTHERS {
        let (other, _) = container(&host, &mut client, &format!("other{other}")).await;
        client.remove_pod(&other).await.unwrap();
    }
    client.sh(&id, "touch /stop").await.unwrap();
    let (ended_well, said) = counting.await.unwrap();
    assert!(ended_well);
    for (number, line) in said.lines().enumerate() {
        assert_eq!(line, number.to_string());
    }

    let silence = Duration::from_secs(size(SILENCE_SECONDS) as u64);
    tokio::time::sleep_until(silent_since + silence).await;
    idle.say("stdin", "echo still $((40 + 2))\n", false).await;
    idle.until("still 42").await;
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
