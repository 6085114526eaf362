//! `podvisor exec`, `attach`, `logs`, `port-forward` and `run -it`, as a person uses them, at a terminal and
//! without one.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use tests_e2e::client::Client;
use tests_e2e::wait::{until, until_seen};
use tests_e2e::{Host, spec};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

pub(crate) fn podvisor(host: &Host, arguments: &[&str]) -> Command {
    let mut command = Command::new(host.daemon.binary());
    command.arg("--config").arg(host.daemon.config()).args(arguments).kill_on_drop(true);
    command
}

/// Runs a command with this input.
async fn with_input(mut command: Command, input: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).await.unwrap();
    drop(stdin);
    child.wait_with_output().await.unwrap()
}

/// A terminal, and a command at it.
struct Terminal {
    child: Child,
    keys: File,
    slave: OwnedFd,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(mut command: Command) -> Terminal {
        let size = Winsize { ws_row: 33, ws_col: 101, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let side = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let mut screen = File::from(pty.master.try_clone().unwrap());
        let shown = Arc::<Mutex<Vec<u8>>>::default();
        let seen = Arc::clone(&shown);
        // Ends with the test's process: we hold the terminal's other side ourselves.
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut chunk) {
                seen.lock().unwrap().extend_from_slice(&chunk[..count]);
            }
        });
        Terminal { child, keys: pty.master.into(), slave: pty.slave, shown }
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    async fn until(&self, text: &str) {
        until_seen(format!("{text:?} on the terminal"), async || {
            let shown = self.text();
            if shown.contains(text) { Ok(()) } else { Err(shown) }
        })
        .await;
    }

    /// Waits for the command's end and returns its code. The terminal must be again as it was.
    async fn ended(&mut self) -> Option<i32> {
        let status = self.child.wait().await.unwrap();
        let flags = tcgetattr(&self.slave).unwrap().local_flags;
        assert!(flags.contains(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG), "{flags:?}");
        status.code()
    }
}

/// A running container with a terminal and an input.
async fn shell(host: &Host, client: &mut Client, name: &str) -> (String, String) {
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod(name, host.dir())).await.unwrap();
    let mut config = spec::container("shell", &image, &["sh"]);
    (config.stdin, config.tty) = (true, true);
    let id = client.run(&pod, config).await.unwrap();
    (pod, id)
}

#[tokio::test]
async fn exec_and_attach_give_a_terminal_and_take_it_back() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let (pod, id) = shell(&host, &mut client, "terminal").await;

    let output = podvisor(&host, &["exec", &id, "sh", "-c", "echo out; echo err >&2; exit 4"]).output();
    let output = output.await.unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(4), &b"out\n"[..]), "{output:?}");
    assert_eq!(output.stderr, b"err\n");
    let typed: Vec<u8> = (0..200_000u32).map(|number| (number % 253) as u8).collect();
    let output = with_input(podvisor(&host, &["exec", "-i", &id, "cat"]), &typed).await;
    assert!(output.status.success() && output.stdout == typed, "{:?}", output.status);
    let output = podvisor(&host, &["exec", &id, "no-such-command"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    let output = podvisor(&host, &["exec", "none", "true"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");

    let mut terminal = Terminal::start(podvisor(&host, &["exec", "-it", &id, "sh"]));
    // From the prompt on, our terminal echoes nothing itself.
    terminal.until("# ").await;
    terminal.press(b"stty size; echo 'is '$((20 + 3))\r");
    terminal.until("33 101").await;
    terminal.until("is 23").await;
    assert_eq!(terminal.text().matches("stty size").count(), 1, "{:?}", terminal.text());
    let slave = Stdio::from(terminal.slave.try_clone().unwrap());
    assert!(
        Command::new("stty")
            .args(["cols", "90", "rows", "20"])
            .stdin(slave)
            .status()
            .await
            .unwrap()
            .success()
    );
    kill(Pid::from_raw(terminal.child.id().unwrap() as i32), Signal::SIGWINCH).unwrap();
    terminal.press(b"until stty size | grep '20 90'; do :; done; exit 7\r");
    assert_eq!(terminal.ended().await, Some(7));

    // Ctrl-C goes to the command, and the two keys leave it running.
    let mut terminal = Terminal::start(podvisor(&host, &["attach", "-it", &id]));
    // The first client sees the prompt.
    terminal.until("# ").await;
    terminal.press(b"sleep 1000 || echo 'inter'rupted\r");
    terminal.until("sleep 1000").await;
    let sleeps = "ps | grep '[s]leep 1000' || true";
    until("the terminal's command to run", async || client.sh(&id, sleeps).await.unwrap() != "").await;
    terminal.press(b"\x03echo st'i'll here\r");
    terminal.until("still here").await;
    terminal.press(b"\x10\x11");
    assert_eq!(terminal.ended().await, Some(0));
    let mut terminal = Terminal::start(podvisor(&host, &["attach", "-it", &id]));
    terminal.press(b"exit 6\r");
    assert_eq!(terminal.ended().await, Some(6));
    assert_eq!(client.wait(&id).await.unwrap().exit_code, 6);
    client.remove_pod(&pod).await.unwrap();

    // A separate container, from its first prompt to its code.
    let mut terminal = Terminal::start(podvisor(&host, &["run", "--rm", "-it", &host.busybox(), "sh"]));
    terminal.until("# ").await;
    terminal.press(b"stty size; exit 5\r");
    terminal.until("33 101").await;
    assert_eq!(terminal.ended().await, Some(5));
    // A command that is over before its session begins, and one whose input is no terminal.
    for flags in ["-t", "-it"] {
        let short = ["run", "--rm", flags, &host.busybox(), "sh", "-c", "echo said; exit 3"];
        let output = podvisor(&host, &short).stdin(Stdio::null()).output().await.unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!((output.status.code(), printed.trim_end()), (Some(3), "said"), "{flags}: {output:?}");
    }
    let pausing = ["run", "--rm", "-it", &host.busybox(), "sh", "-c", "echo begin; sleep 3; echo end"];
    let output = podvisor(&host, &pausing).stdin(Stdio::null()).output().await.unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("end\r\n"), "{output:?}");
    let output =
        with_input(podvisor(&host, &["run", "--rm", "-i", &host.busybox(), "cat"]), b"hello\n").await;
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"hello\n"[..]), "{output:?}");
    assert!(client.pods().await.unwrap().is_empty());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_run_with_a_terminal_outlives_a_killed_daemon() {
    let Some(mut host) = Host::start().await else { return };
    let mut terminal = Terminal::start(podvisor(&host, &["run", "--rm", "-it", &host.busybox(), "sh"]));
    terminal.until("# ").await;
    host.daemon.kill_and_restart().await.unwrap();
    terminal.until("attaching again").await;
    // Typed before the next session, or in it.
    terminal.press(b"echo st'i'll here; exit 5\r");
    terminal.until("still here").await;
    assert_eq!(terminal.ended().await, Some(5));
    assert!(host.client().pods().await.unwrap().is_empty());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn logs_and_ports_of_a_running_container_reach_a_person() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("person", host.dir())).await.unwrap();
    let line = "echo ready; echo oops >&2; mkdir /www; echo forwarded > /www/file; \
                httpd -p 127.0.0.1:8080 -h /www; while [ ! -e /stop ]; do sleep 1; done; echo last";
    let id = client.run(&pod, spec::shell("web", &image, line)).await.unwrap();
    client.sh(&id, "until wget -q -O /dev/null http://127.0.0.1:8080/file; do :; done").await.unwrap();

    let output = podvisor(&host, &["logs", &id]).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"ready\n"[..], &b"oops\n"[..]));

    let mut command = podvisor(&host, &["port-forward", &pod[..12], "0:8080", "0:8081"]);
    let mut forward = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
    let mut ports = Vec::new();
    for _ in 0..2 {
        let line = lines.next_line().await.unwrap().unwrap();
        ports.push(line.split_whitespace().nth(1).unwrap().to_owned());
    }
    for _ in 0..3 {
        let mut connection = TcpStream::connect(&ports[0]).await.unwrap();
        connection.write_all(b"GET /file HTTP/1.0\r\n\r\n").await.unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).await.unwrap();
        assert!(text.ends_with("\r\n\r\nforwarded\n"), "{text}");
    }
    let mut refused = TcpStream::connect(&ports[1]).await.unwrap();
    let _ = refused.read_to_end(&mut Vec::new()).await;
    let mut errors = BufReader::new(forward.stderr.take().unwrap()).lines();
    let line = errors.next_line().await.unwrap().unwrap();
    assert!(line.contains("8081") && line.contains("refused"), "{line}");
    forward.kill().await.unwrap();

    let mut command = podvisor(&host, &["logs", "-f", &id]);
    let follow = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    client.sh(&id, "touch /stop").await.unwrap();
    let output = follow.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"ready\nlast\n"[..]));
    assert_eq!(output.stderr, b"oops\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
