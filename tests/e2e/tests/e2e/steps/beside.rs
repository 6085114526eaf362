//! The pod beside: a container that writes numbered lines while its neighbours' daemon and VMMs are killed. Nothing of it
//! may change, and no line of it may be lost or torn.

use std::path::PathBuf;

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};

/// Most bytes that one chunk of output has. A daemon that is killed between a chunk's write and its acknowledgement has
/// the chunk written again (docs/output.md).
const CHUNK_BYTES_MAX: usize = 64 << 10;

pub(crate) struct Beside {
    pub(crate) pod: String,
    container: String,
    started_at: i64,
    log: PathBuf,
}

impl Beside {
    pub(crate) async fn start(host: &Host, image: &str) -> Beside {
        let mut client = host.client();
        let config = spec::pod("beside", host.dir());
        let pod = client.run_pod(&config).await.unwrap();
        let line = "n=0; while :; do echo line $n; n=$((n+1)); sleep 0.1; done";
        let container = client.run(&pod, spec::shell("writer", image, line)).await.unwrap();
        let started_at = client.status(&container).await.unwrap().started_at;
        Beside { pod, container, started_at, log: PathBuf::from(config.log_directory).join("writer.log") }
    }

    /// Asserts that the container runs on, unchanged, and returns how many lines it has written, and how many of them are
    /// in the log again after a kill.
    pub(crate) async fn check(&self, client: &mut Client, kills: usize) -> (usize, usize) {
        let status = client.status(&self.container).await.unwrap();
        assert_eq!(
            (status.state(), status.started_at),
            (v1::ContainerState::ContainerRunning, self.started_at)
        );
        assert_eq!(client.pod_status(&self.pod).await.unwrap().state(), v1::PodSandboxState::SandboxReady);
        let before = numbers(&std::fs::read(&self.log).unwrap()).len();
        // It goes on writing, and its lines arrive.
        let log = loop {
            let log = std::fs::read(&self.log).unwrap();
            if numbers(&log).len() > before {
                break log;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        };
        let lines = numbers(&log);
        let again = repeated(&lines, log.len() / lines.len());
        assert!(again.len() <= kills, "{kills} kills, and chunks come again {} times", again.len());
        (lines.len(), again.len())
    }
}

/// The numbers of the log's lines. The last one may be about to be written.
fn numbers(log: &[u8]) -> Vec<usize> {
    let whole = log.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = std::str::from_utf8(&log[..whole]).unwrap();
    let number = |entry: &str| {
        let parts: Vec<_> = entry.split(' ').collect();
        let [_, "stdout", "F", "line", number] = parts[..] else { panic!("a torn entry: {entry:?}") };
        number.parse().unwrap_or_else(|_| panic!("a torn entry: {entry:?}"))
    };
    text.lines().map(number).collect()
}

/// Asserts that no number is missing, and returns where lines that were there come again.
fn repeated(lines: &[usize], line_bytes: usize) -> Vec<usize> {
    let (mut next, mut again) = (0, Vec::new());
    for line in lines {
        assert!(*line <= next, "lines {next} to {line} are lost");
        if *line < next {
            assert!((next - line) * line_bytes <= CHUNK_BYTES_MAX, "{line} after {next}: more than a chunk");
            again.push(*line);
        }
        next = line + 1;
    }
    again
}
