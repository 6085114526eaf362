//! Much data through a session: every byte as it was, and no more memory than buffers need.

use std::path::PathBuf;

use bytes::Bytes;
use sha1::{Digest, Sha1};
use tests_e2e::Host;
use tests_e2e::client::Client;

use crate::load::{container, size, status_kib, watcher};
use crate::session::{Session, exec_url};

/// Output bytes, in printed files of a little over 1 MiB: normal, full, soak; 32 MiB, 256 MB and 10 GB at
/// least.
const OUT: [usize; 3] = [32, 256, 10_240];
/// Patterns in the repeatedly printed file. Each repetition starts a program, so few are cheap.
const PATTERNS: usize = 17;
/// Input bytes.
const IN: [usize; 3] = [16 << 20, 64 << 20, 1 << 30];

/// Bytes between two looks at the memory.
const LOOK_EVERY: usize = 8 << 20;

/// Memory growth of each process for a stream, in KiB: the connections' buffers, and an allocator's reserves.
/// The bound is far below the transferred bytes.
const DAEMON_GROWTH_KIB: u64 = 16 * 1024;
const VMM_GROWTH_KIB: u64 = 4 * 1024;
const AGENT_GROWTH_KIB: u64 = 4 * 1024;

/// Bytes with a prime period, to detect lost, doubled or moved pieces.
fn pattern() -> Vec<u8> {
    (0..65_521u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// The processes on a stream's way.
struct Carriers {
    daemon: PathBuf,
    vmm: PathBuf,
    watcher: String,
    before: Memory,
    most: Memory,
}

/// Memory of these processes in KiB: of the daemon and the agent the peak resident size, of the VMM its own,
/// without its guest's.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    daemon_kib: u64,
    vmm_kib: u64,
    agent_kib: u64,
}

impl Carriers {
    async fn of(host: &Host, client: &mut Client, pod: &str) -> Carriers {
        let status = |pid: &str| PathBuf::from(format!("/proc/{pid}/status"));
        let mut carriers = Carriers {
            daemon: status(&host.daemon.pid().to_string()),
            vmm: status(&client.vmm(pod).await.unwrap().to_string()),
            watcher: watcher(host, client, pod).await,
            before: Memory::default(),
            most: Memory::default(),
        };
        carriers.look();
        carriers.look_into_guest(client).await;
        carriers.before = carriers.most;
        carriers
    }

    /// Looks at the host's processes while data flows.
    fn look(&mut self) {
        let figure = |path, name| status_kib(&std::fs::read_to_string(path).unwrap(), name);
        self.most.daemon_kib = self.most.daemon_kib.max(figure(&self.daemon, "VmHWM"));
        self.most.vmm_kib = self.most.vmm_kib.max(figure(&self.vmm, "RssAnon"));
    }

    async fn look_into_guest(&mut self, client: &mut Client) {
        let status = client.sh(&self.watcher, "cat /proc/1/status").await.unwrap();
        self.most.agent_kib = self.most.agent_kib.max(status_kib(&status, "VmHWM"));
    }

    fn assert_bounded(&self) {
        let (before, most) = (self.before, self.most);
        eprintln!("memory: before {before:?}, most {most:?}");
        assert!(most.daemon_kib <= before.daemon_kib + DAEMON_GROWTH_KIB, "{before:?} {most:?}");
        assert!(most.vmm_kib <= before.vmm_kib + VMM_GROWTH_KIB, "{before:?} {most:?}");
        assert!(most.agent_kib <= before.agent_kib + AGENT_GROWTH_KIB, "{before:?} {most:?}");
    }
}

#[tokio::test]
async fn much_goes_out_and_in_unchanged_through_bounded_memory() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let (pod, id) = container(&host, &mut client, "much").await;
    let pattern = pattern();
    let url = exec_url(&mut client, &id, &["sh", "-c", "cat > /pattern"], true, false).await;
    let mut session = Session::open(&url, &["stdin", "stdout", "stderr"]).await;
    session.say("stdin", pattern.clone(), true).await;
    assert_eq!(session.end().await["status"], "Success");
    let mut carriers = Carriers::of(&host, &mut client, &pod).await;

    let (times, out) = (size(OUT), size(OUT) * PATTERNS * pattern.len());
    let line = format!(
        "for i in $(seq {PATTERNS}); do cat /pattern; done > /printed; i=0; \
         while [ $i -lt {times} ]; do cat /printed; i=$((i + 1)); done"
    );
    let url = exec_url(&mut client, &id, &["sh", "-c", &line], false, false).await;
    let mut session = Session::open(&url, &["stdout", "stderr"]).await;
    let (mut seen, mut looked) = (0, 0);
    loop {
        let goes_on = session.step().await;
        if let Some(bytes) = session.said.get_mut("stdout") {
            assert!(repeats(&pattern, seen, bytes), "after {seen} bytes");
            seen += bytes.len();
            bytes.clear();
        }
        if seen / LOOK_EVERY > looked {
            looked = seen / LOOK_EVERY;
            carriers.look();
        }
        if !goes_on {
            break;
        }
    }
    assert_eq!(seen, out);

    let input = size(IN);
    let url = exec_url(&mut client, &id, &["sha1sum"], true, false).await;
    let mut session = Session::open(&url, &["stdin", "stdout", "stderr"]).await;
    let (pattern, mut sum, mut left) = (Bytes::from(pattern), Sha1::new(), input);
    while left > 0 {
        let piece = pattern.slice(..left.min(pattern.len()));
        sum.update(&piece);
        left -= piece.len();
        session.say("stdin", piece, left == 0).await;
        if left / LOOK_EVERY < looked {
            looked = left / LOOK_EVERY;
            carriers.look();
        }
    }
    assert_eq!(session.end().await["status"], "Success");
    let sum: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(session.text("stdout"), format!("{sum}  -\n"));
    carriers.look();
    carriers.look_into_guest(&mut client).await;
    carriers.assert_bounded();
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// Returns true if `bytes` are the pattern's, repeated, from `at` on.
fn repeats(pattern: &[u8], at: usize, mut bytes: &[u8]) -> bool {
    let mut from = at % pattern.len();
    while !bytes.is_empty() {
        let length = bytes.len().min(pattern.len() - from);
        if bytes[..length] != pattern[from..from + length] {
            return false;
        }
        (bytes, from) = (&bytes[length..], 0);
    }
    true
}
