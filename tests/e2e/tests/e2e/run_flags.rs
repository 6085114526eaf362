//! The flags of `podvisor run`, and the commands that take its pod by name.

use std::path::Path;

use proto_cri::v1::PodSandboxState;
use tests_e2e::Host;
use tests_e2e::wait::until_seen;

/// The command's exit code, its output, and what it says on standard error.
async fn podvisor(host: &Host, arguments: &[&str]) -> (i32, String, String) {
    let output = host.podvisor(arguments).env("OF_THE_CALLER", "seen").output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Log directories of runs.
fn logs(host: &Host) -> usize {
    std::fs::read_dir(host.dir().join("state/runs")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn flags_of_docker_mean_what_they_mean_there() {
    let Some(host) = Host::start().await else { return };
    let image = host.busybox();
    std::fs::write(host.dir().join("env"), "# of the file\nOF_FILE=one\nA=file\n").unwrap();
    std::fs::create_dir(host.dir().join("given")).unwrap();
    std::fs::write(host.dir().join("given/file"), "of the node\n").unwrap();
    let script = "echo $A $OF_FILE $OF_THE_CALLER; id -u; id -g; id -G; pwd; hostname; cat /given/file; \
                  touch /given/x 2>/dev/null || echo given is read-only; touch /made/x; \
                  touch /root/x 2>/dev/null || echo root is read-only; grep CapBnd /proc/self/status; \
                  cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max; cat /proc/sys/net/core/somaxconn; \
                  grep -v '^#' /etc/resolv.conf; exit 9";
    let arguments = [
        "run",
        "--rm",
        "-e",
        "A=cli",
        "-e",
        "OF_THE_CALLER",
        "--env-file",
        "env",
        "-u",
        "0:7",
        "--group-add",
        "8",
        "-w",
        "/tmp",
        "--hostname",
        "here",
        "-v",
        "./given:/given:ro",
        "-v",
        "./made/new:/made",
        "--read-only",
        "--cap-drop",
        "ALL",
        "--cap-add",
        "CAP_CHOWN",
        "-m",
        "128m",
        "--cpus",
        "0.5",
        "--sysctl",
        "net.core.somaxconn=99",
        "--dns",
        "192.0.2.7",
        "--dns-search",
        "a.example",
        "--platform",
        "linux/amd64",
        "--network",
        "bridge",
        "--pull",
        "always",
        "-l",
        "a=b",
        &image,
        "sh",
        "-c",
        script,
    ];
    let (code, output, error) = podvisor(&host, &arguments).await;
    let expected = [
        "cli one seen",
        "0",
        "7",
        "7 8",
        "/tmp",
        "here",
        "of the node",
        "given is read-only",
        "root is read-only",
        "CapBnd:\t0000000000000001",
        "134217728",
        "50000 100000",
        "99",
        "search a.example",
        "nameserver 192.0.2.7",
    ];
    assert_eq!(output.lines().collect::<Vec<_>>(), expected, "{error}");
    assert_eq!(code, 9, "{error}");
    assert!(host.dir().join("made/new/x").exists(), "a missing directory is made, and may be written to");
    assert_eq!(logs(&host), 0, "with --rm the log goes with its pod");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_container_in_the_background_is_known_by_its_name_until_it_is_removed() {
    let Some(host) = Host::start().await else { return };
    let image = host.busybox();
    let script = "trap 'echo ending; exit 5' TERM; echo begun; while :; do sleep 0.1; done";
    let detached = ["run", "-d", "--name", "web", &image, "sh", "-c", script];
    let (code, id, error) = podvisor(&host, &detached).await;
    assert!(code == 0 && id.trim().len() == 64, "{id}{error}");
    let (code, _, error) = podvisor(&host, &detached).await;
    assert!(code == 125 && error.contains("a pod podvisor-run/web exists"), "{error}");
    // The id that was printed is the pod's, and means its container, too.
    let (code, output, error) = podvisor(&host, &["exec", id.trim(), "hostname"]).await;
    assert_eq!((code, output.as_str()), (0, "web\n"), "{error}");
    assert_eq!(podvisor(&host, &["exec", "web", "hostname"]).await, (0, "web\n".into(), String::new()));
    until_seen("the container's first line", async || match podvisor(&host, &["logs", "web"]).await {
        (0, output, _) if output == "begun\n" => Ok(()),
        other => Err(other),
    })
    .await;
    let waiting = host.podvisor(&["wait", "web"]).output();
    let stopping = podvisor(&host, &["stop", "web"]);
    let (waited, (code, stopped, error)) = tokio::join!(waiting, stopping);
    assert!(code == 0 && stopped.starts_with("stopped ") && stopped.ends_with("/web\n"), "{stopped}{error}");
    assert_eq!(String::from_utf8_lossy(&waited.unwrap().stdout), "5\n");
    // The log stays until the pod is removed.
    let (_, output, error) = podvisor(&host, &["logs", "web"]).await;
    assert_eq!(output, "begun\nending\n", "{error}");
    assert_eq!(logs(&host), 1);
    let (code, _, error) = podvisor(&host, &["rm", "web"]).await;
    assert_eq!((code, logs(&host)), (0, 0), "{error}");
    let (code, _, error) = podvisor(&host, &["logs", "web"]).await;
    assert!(code == 125 && error.contains("has the id or the name \"web\""), "{error}");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_in_the_background_leaves_its_log_and_no_vm() {
    let Some(host) = Host::start().await else { return };
    let image = host.busybox();
    for name in ["job", "next"] {
        let job = ["run", "-d", "--name", name, &image, "sh", "-c", "echo done; exit 4"];
        let (code, _, error) = podvisor(&host, &job).await;
        assert_eq!(code, 0, "{error}");
        assert_eq!(podvisor(&host, &["wait", name]).await, (0, "4\n".into(), String::new()));
        let listed = host.client().pods().await.unwrap();
        assert!(
            matches!(&listed[..], [pod] if pod.state() == PodSandboxState::SandboxNotready),
            "{listed:?}"
        );
        assert_eq!(podvisor(&host, &["logs", name]).await.1, "done\n");
        let (code, _, error) = podvisor(&host, &["rm", name]).await;
        assert_eq!((code, logs(&host)), (0, 0), "{error}");
    }
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_run_that_cannot_begin_leaves_nothing_and_says_why() {
    let Some(mut host) = Host::start().await else { return };
    let image = host.busybox();
    let missing = format!("{image}-missing");
    for (arguments, why) in [
        (&["--pull", "never", &missing][..], "--pull never does not pull it"),
        (&["--env-file", "/none", &image], "--env-file /none"),
        (&["--mount", "type=bind,src=/none,dst=/x", &image], "the volume's source /none"),
        (&["-m", "64", &image], "64 bytes are less than 6m"),
        (&["--network", "host", &image], "a network of its own"),
        (&["--tmpfs", "/run", &image], "podvisor run has no --tmpfs: "),
        (&["--device", "/dev/none", &image], "/dev/none"),
    ] {
        let (code, output, error) = podvisor(&host, &[&["run"], arguments].concat()).await;
        assert!(code != 0 && output.is_empty() && error.contains(why), "{arguments:?}: {error}");
        assert_eq!(logs(&host), 0, "{arguments:?}");
    }
    host.daemon.stop().await.unwrap();
    let (code, _, error) = podvisor(&host, &["run", "-d", &image]).await;
    assert!(code == 125 && error.contains("-d needs the node's daemon"), "{error}");
    assert!(!Path::new(&host.dir().join("run/private")).exists());
}

#[tokio::test]
async fn an_init_reaps_and_a_privileged_container_has_the_rights_of_its_vm() {
    let Some(host) = Host::start().await else { return };
    let image = host.busybox();
    let orphan = "(sleep 0.1 & ) ; sleep 1; ps -o pid,comm | grep -c sleep; echo $$";
    let (_, output, error) = podvisor(&host, &["run", "--rm", "--init", &image, "sh", "-c", orphan]).await;
    let lines: Vec<&str> = output.lines().collect();
    assert!(matches!(lines[..], ["0", pid] if pid != "1"), "{output}{error}");
    let rights = "mount -t tmpfs none /mnt && grep CapEff /proc/self/status";
    let arguments = ["run", "--rm", "--privileged", "--entrypoint", "sh", &image, "-c", rights];
    let (code, output, error) = podvisor(&host, &arguments).await;
    assert!(code == 0 && output.contains("CapEff:\t000001ffffffffff"), "{output}{error}");
    host.stop().await.unwrap();
}
