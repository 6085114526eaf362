//! The pod beside: a container writing numbered lines while its neighbours' daemon and VMMs are killed. It
//! must not change, and no line may be lost or torn.

use std::path::PathBuf;

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::numbered::{self, Lines};
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};

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

    /// Asserts that the container still runs, unchanged, and returns its lines.
    pub(crate) async fn check(&self, client: &mut Client, kills: usize) -> Lines {
        let status = client.status(&self.container).await.unwrap();
        assert_eq!(
            (status.state(), status.started_at),
            (v1::ContainerState::ContainerRunning, self.started_at)
        );
        assert_eq!(client.pod_status(&self.pod).await.unwrap().state(), v1::PodSandboxState::SandboxReady);
        let before = lines(&std::fs::read(&self.log).unwrap()).count;
        let lines = until_seen("more lines of the container beside", async || {
            let lines = lines(&std::fs::read(&self.log).unwrap());
            if lines.count > before { Ok(lines) } else { Err(lines) }
        });
        let lines = lines.await;
        assert!(lines.again <= kills, "{kills} kills, and chunks come again {} times", lines.again);
        lines
    }
}

/// The log's whole lines. The last one may be about to be written.
fn lines(log: &[u8]) -> Lines {
    let whole = log.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    numbered::lines(std::str::from_utf8(&log[..whole]).unwrap(), 0).unwrap()
}
