//! Container logs: whole, in CRI's form, and there before the exit is told.

use std::path::PathBuf;

use tests_e2e::{Host, spec};

#[tokio::test]
async fn a_hundred_megabytes_of_output_lose_no_byte() {
    const BYTES: usize = 100 << 20;
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("flood", host.dir());
    let pod = client.run_pod(&config).await.unwrap();
    // Lines of 64 bytes with their number, so that a lost, doubled or torn one shows.
    let program = "BEGIN { for (i = 0; i < 1638400; i++) printf \"%063d\\n\", i }";
    let container = client.run(&pod, spec::container("flood", &image, &["awk", program])).await.unwrap();
    let status = client.wait(&container).await.unwrap();
    assert_eq!(status.exit_code, 0, "{}", status.message);
    let text = std::fs::read_to_string(PathBuf::from(&config.log_directory).join("flood.log")).unwrap();
    let (mut next, mut bytes, mut line) = (0u64, 0usize, String::new());
    for entry in text.lines() {
        let mut parts = entry.splitn(4, ' ');
        let (_time, stream, flag, content) =
            (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        assert_eq!(stream, "stdout");
        line.push_str(content);
        if flag == "F" {
            bytes += line.len() + 1;
            assert_eq!(line.parse::<u64>().unwrap(), next, "{entry}");
            next += 1;
            line.clear();
        }
    }
    assert_eq!((next, bytes), (1_638_400, BYTES));
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn stdout_and_stderr_are_told_apart_and_a_last_line_without_its_end_is_partial() {
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
