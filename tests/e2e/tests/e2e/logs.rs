//! Container logs: whole, in CRI's form, and complete before the exit is reported.

use std::path::PathBuf;

use nix::mount::MsFlags;
use proto_cri::v1;
use tests_e2e::{Host, spec};

use crate::load::size;

/// An awk program writing lines of 64 bytes with their number, to detect lost, doubled or torn lines.
fn numbers(lines: u32) -> String {
    format!("BEGIN {{ for (i = 0; i < {lines}; i++) printf \"%063d\\n\", i }}")
}

/// The lines of stdout in a log, put together from their parts. Every entry must be whole.
fn content(log: &[u8]) -> Vec<Vec<u8>> {
    let (mut lines, mut line) = (Vec::new(), Vec::new());
    for entry in log.split_inclusive(|byte| *byte == b'\n') {
        let entry = entry.strip_suffix(b"\n").expect("the last entry ends");
        let parts: Vec<_> = entry.splitn(4, |byte| *byte == b' ').collect();
        let [time, stream, flag, text] = parts[..] else { panic!("{:?}", String::from_utf8_lossy(entry)) };
        assert!(time.ends_with(b"Z") && stream == b"stdout", "{:?}", String::from_utf8_lossy(entry));
        line.extend_from_slice(text);
        match flag {
            b"F" => lines.push(std::mem::take(&mut line)),
            b"P" => {}
            _ => panic!("{:?}", String::from_utf8_lossy(entry)),
        }
    }
    // The rest without a newline, or nothing.
    lines.push(line);
    lines
}

/// Asserts that these are the lines of [`numbers`], again and again.
fn assert_numbered(log: &[u8], lines: u32, times: u32) {
    let mut seen = content(log);
    assert_eq!(seen.pop(), Some(Vec::new()));
    assert_eq!(seen.len(), (lines * times) as usize);
    for (number, line) in (0..lines).cycle().zip(&seen) {
        assert!(
            *line == format!("{number:063}").into_bytes(),
            "{number}: {:?}",
            String::from_utf8_lossy(line)
        );
    }
}

#[tokio::test]
async fn megabytes_of_output_lose_no_byte() {
    const LINES: u32 = (1 << 20) / 64;
    let megabytes = u32::try_from(size([20, 100, 1000])).unwrap();
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("flood", host.dir());
    let pod = client.run_pod(&config).await.unwrap();
    // Written once and printed many times: the log alone is to be the slow part.
    let line =
        format!("awk '{}' > /lines; for time in $(seq {megabytes}); do cat /lines; done", numbers(LINES));
    let container = client.run(&pod, spec::shell("flood", &image, &line)).await.unwrap();
    let status = client.wait(&container).await.unwrap();
    assert_eq!(status.exit_code, 0, "{}", status.message);
    let log = std::fs::read(PathBuf::from(&config.log_directory).join("flood.log")).unwrap();
    assert_numbered(&log, LINES, megabytes);
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn rotation_at_full_speed_loses_doubles_and_tears_no_line() {
    const LINES: u32 = (16 << 20) / 64;
    const ROTATIONS_MIN: usize = 5;
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("rotated", host.dir());
    let pod = client.run_pod(&config).await.unwrap();
    let writer = spec::container("writer", &image, &["awk", &numbers(LINES)]);
    let container = client.run(&pod, writer).await.unwrap();
    let path = PathBuf::from(&config.log_directory).join("writer.log");
    let mut rotated = Vec::new();
    // As the kubelet does: the file is moved away, then the runtime reopens it.
    while client.status(&container).await.unwrap().state() == v1::ContainerState::ContainerRunning {
        let begun = std::fs::metadata(&path).is_ok_and(|file| file.len() > 0);
        if !begun {
            continue;
        }
        let old = path.with_extension(rotated.len().to_string());
        std::fs::rename(&path, &old).unwrap();
        rotated.push(old);
        let request = v1::ReopenContainerLogRequest { container_id: container.clone() };
        match client.runtime.reopen_container_log(request).await {
            Ok(_) => assert!(path.exists(), "the new file is there when the call returns"),
            // It may have ended in between.
            Err(error) => assert_eq!(error.code(), tonic::Code::FailedPrecondition, "{error}"),
        }
    }
    assert_eq!(client.wait(&container).await.unwrap().exit_code, 0);
    assert!(rotated.len() >= ROTATIONS_MIN, "{} rotations", rotated.len());
    rotated.push(path);
    let log: Vec<u8> = rotated.iter().flat_map(|path| std::fs::read(path).unwrap_or_default()).collect();
    assert_numbered(&log, LINES, 1);
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn binary_output_is_in_the_log_as_it_was() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("binary", host.dir());
    let pod = client.run_pod(&config).await.unwrap();
    // Long runs without a newline, and every byte.
    let line =
        "head -c 100000 /dev/zero; head -c 1000000 /dev/urandom | tee /noise; while :; do sleep 1; done";
    let container = client.run(&pod, spec::shell("noise", &image, line)).await.unwrap();
    let noise = "until [ $(stat -c %s /noise) = 1000000 ]; do sleep 0.1; done; cat /noise";
    let noise = client.exec(&container, &["sh", "-c", noise], 600).await.unwrap().stdout;
    client.stop(&container, 0).await.unwrap();
    let log = std::fs::read(PathBuf::from(&config.log_directory).join("noise.log")).unwrap();
    let expected = [vec![0; 100_000], noise].concat();
    assert!(content(&log).join(&b'\n') == expected);
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_full_log_disk_is_reported_stops_no_container_and_is_written_again_when_there_is_room() {
    const SMALL: &str = "size=256k";
    const LARGE: &str = "size=16m";
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let disk = host.dir().join("logdisk");
    std::fs::create_dir(&disk).unwrap();
    let mount = |flags, size| nix::mount::mount(Some("none"), &disk, Some("tmpfs"), flags, Some(size));
    mount(MsFlags::empty(), SMALL).unwrap();
    let config = v1::PodSandboxConfig {
        log_directory: disk.join("logs").display().to_string(),
        ..spec::pod("full", host.dir())
    };
    let pod = client.run_pod(&config).await.unwrap();
    let line = format!(
        "awk '{}'; echo full > /full; until [ -e /room ]; do sleep 0.1; done; echo; echo room; exit 3",
        numbers((1 << 20) / 64)
    );
    let container = client.run(&pod, spec::shell("writer", &image, &line)).await.unwrap();
    // It wrote four times the available space, and goes on.
    client.sh(&container, "until [ -e /full ]; do sleep 0.1; done").await.unwrap();
    host.daemon.logs("a container's log cannot be written", 1).await;
    mount(MsFlags::MS_REMOUNT, LARGE).unwrap();
    client.sh(&container, "touch /room").await.unwrap();
    assert_eq!(client.wait(&container).await.unwrap().exit_code, 3);
    assert!(host.daemon.log().contains("a container's log is written again"));
    let log = std::fs::read(disk.join("logs/writer.log")).unwrap();
    let lines = content(&log);
    let numbered = lines.iter().filter(|line| line.len() == 63).count();
    assert!(numbered > 100 && numbered < (1 << 20) / 64, "{numbered} lines had room");
    assert_eq!(lines[lines.len() - 2..], [b"room".to_vec(), Vec::new()]);
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
    nix::mount::umount(&disk).unwrap();
}

#[tokio::test]
async fn stdout_and_stderr_are_distinguished_and_a_last_line_without_its_end_is_partial() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("streams", host.dir());
    let pod = client.run_pod(&config).await.unwrap();
    let line = "echo out; echo err >&2; printf tail";
    let container = client.run(&pod, spec::shell("main", &image, line)).await.unwrap();
    client.wait(&container).await.unwrap();
    let text = std::fs::read_to_string(PathBuf::from(&config.log_directory).join("main.log")).unwrap();
    let mut entries: Vec<&str> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    entries.sort_unstable();
    assert_eq!(entries, ["stderr F err", "stdout F out", "stdout P tail"]);
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn the_log_path_of_the_status_is_absolute() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("path", host.dir());
    let pod = client.run_pod(&config).await.unwrap();
    let container = client.run(&pod, spec::container("main", &image, &["true"])).await.unwrap();
    let status = client.wait(&container).await.unwrap();
    assert_eq!(PathBuf::from(status.log_path), PathBuf::from(&config.log_directory).join("main.log"));
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
