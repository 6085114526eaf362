//! One client of a walk: it makes a pod, works with its containers, and removes them, like a kubelet: after a
//! failure it looks and retries.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto_cri::v1::{ContainerState, ContainerStatus, ListContainersRequest, PodSandboxConfig};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tests_e2e::wait::WITHIN;
use tests_e2e::{Host, client, spec};
use tonic::Status;

use super::model::{Container, Counts, Ending, Ledger, Stage};

/// Containers of a pod at most.
const CONTAINERS: usize = 3;
/// How long a call may take: longer than the sum of all bounds of a call about a pod in recovery.
const HUNG: Duration = WITHIN;
/// Pause before a call is made again.
const PAUSE: Duration = Duration::from_millis(300);
/// How long a call without a VM may fail after the death of the pod's VM: until this is noticed.
const LET_GO_WITHIN: Duration = WITHIN;

pub(super) struct Client {
    number: u64,
    client: client::Client,
    random: StdRng,
    ledger: Arc<Ledger>,
    image: String,
    dir: PathBuf,
    pod: Option<Pod>,
    counts: Counts,
}

struct Pod {
    id: String,
    containers: Vec<Container>,
}

/// A failed call, explained by a disturbance.
struct Excused;

impl Client {
    pub(super) fn new(number: u64, seed: u64, host: &Host, image: &str, ledger: &Arc<Ledger>) -> Client {
        Client {
            number,
            client: host.client(),
            random: StdRng::seed_from_u64(seed.wrapping_add(number + 1)),
            ledger: ledger.clone(),
            image: image.to_owned(),
            dir: host.dir().to_owned(),
            pod: None,
            counts: Counts::default(),
        }
    }

    /// Works until then, and removes its objects.
    pub(super) async fn walk(mut self, until: Instant) -> Counts {
        while Instant::now() < until {
            self.act().await;
        }
        self.remove_pod().await;
        self.counts
    }

    async fn act(&mut self) {
        if self.pod.is_none() {
            return self.run_pod().await;
        }
        let containers = self.pod.as_ref().map_or(0, |pod| pod.containers.len());
        match self.random.random_range(0..100) {
            0..30 if containers < CONTAINERS => self.create().await,
            0..60 if containers > 0 => {
                let which = self.random.random_range(0..containers);
                match self.container(which).stage {
                    Stage::Created => self.start(which).await,
                    Stage::Started => self.exec(which).await,
                    Stage::Stopped => self.remove(which).await,
                }
            }
            60..75 if containers > 0 => {
                let which = self.random.random_range(0..containers);
                self.stop(which).await;
            }
            75..80 if containers > 0 => {
                let which = self.random.random_range(0..containers);
                self.remove(which).await;
            }
            80..85 => self.remove_pod().await,
            _ => self.look().await,
        }
    }

    fn pod(&mut self) -> &mut Pod {
        self.pod.as_mut().expect("a pod")
    }

    fn container(&mut self, which: usize) -> &mut Container {
        &mut self.pod().containers[which]
    }

    fn is_lost(&self) -> bool {
        self.pod.as_ref().is_some_and(|pod| self.ledger.is_lost(&pod.id))
    }

    /// Awaits a call's answer. An unexplained failure ends the walk.
    async fn answer<T>(
        &mut self,
        what: &str,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Excused> {
        let then = self.ledger.now();
        self.counts.calls += 1;
        let answer = tokio::time::timeout(HUNG, call).await;
        let answer = answer.unwrap_or_else(|_| panic!("client {}: {what} hangs", self.number));
        answer.map_err(|error| {
            let excused = self.is_lost() || self.ledger.disturbed_since(then);
            assert!(excused, "client {}: {what} failed beside no disturbance: {error}", self.number);
            self.counts.failed_beside_disturbances += 1;
            Excused
        })
    }

    /// Makes a call until it succeeds.
    async fn insist<T, F: Future<Output = Result<T, Status>>>(
        &mut self,
        what: &str,
        mut call: impl FnMut(client::Client) -> F,
    ) -> T {
        let begun = Instant::now();
        loop {
            let then = self.ledger.now();
            self.counts.calls += 1;
            let answer = tokio::time::timeout(HUNG, call(self.client.clone())).await;
            match answer.unwrap_or_else(|_| panic!("client {}: {what} hangs", self.number)) {
                Ok(answer) => return answer,
                Err(error) => {
                    let lost = self.is_lost() && begun.elapsed() < LET_GO_WITHIN;
                    let excused = lost || (self.ledger.disturbed_since(then) && begun.elapsed() < HUNG);
                    assert!(excused, "client {}: {what} failed beside no disturbance: {error}", self.number);
                    self.counts.failed_beside_disturbances += 1;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn run_pod(&mut self) {
        let config = spec::pod(&format!("walk{}", self.number), &self.dir);
        let mut client = self.client.clone();
        if let Ok(id) = self.answer("RunPodSandbox", client.run_pod(&config)).await {
            self.counts.pods += 1;
            self.ledger.offer(&id);
            self.pod = Some(Pod { id, containers: Vec::new() });
            return;
        }
        // A failed start leaves nothing, or a removable pod; a start with a lost answer leaves a ready one.
        for id in self.pods_of(&config).await {
            self.insist("RemovePodSandbox after a failed start", |mut client| {
                let id = id.clone();
                async move { client.remove_pod(&id).await }
            })
            .await;
        }
    }

    async fn pods_of(&mut self, config: &PodSandboxConfig) -> Vec<String> {
        let pods = self.insist("ListPodSandbox", |mut client| async move { client.pods().await }).await;
        pods.into_iter().filter(|pod| pod.metadata == config.metadata).map(|pod| pod.id).collect()
    }

    async fn create(&mut self) {
        let ending = self.random.random_bool(0.5).then(|| Ending {
            lines: self.random.random_range(1..40),
            code: self.random.random_range(0..100),
        });
        let (lines, code) = ending.map_or((1_000_000, 0), |ending| (ending.lines, ending.code));
        let counting = format!(
            "n=0; while [ $n -lt {lines} ]; do n=$((n+1)); echo line $n; sleep 0.1; done; exit {code}"
        );
        self.counts.containers += 1;
        let name = format!("c{}", self.counts.containers);
        let config = spec::shell(&name, &self.image, &counting);
        let (mut client, pod) = (self.client.clone(), self.pod().id.clone());
        let kills_before = self.ledger.kills();
        if let Ok(id) = self.answer("CreateContainer", client.create(&pod, config)).await {
            self.pod().containers.push(Container { id, stage: Stage::Created, ending, kills_before });
            return;
        }
        let all = self
            .insist("ListContainers", |mut client| async move {
                Ok(client
                    .runtime
                    .list_containers(ListContainersRequest::default())
                    .await?
                    .into_inner()
                    .containers)
            })
            .await;
        let mine = all.into_iter().filter(|one| one.pod_sandbox_id == pod);
        for one in mine.filter(|one| one.metadata.as_ref().is_some_and(|metadata| metadata.name == name)) {
            self.remove_id(one.id).await;
        }
    }

    async fn start(&mut self, which: usize) {
        let (mut client, id) = (self.client.clone(), self.container(which).id.clone());
        let started = self.answer("StartContainer", client.start(&id)).await.is_ok();
        // After a failure it is as it was, or runs, or has ended; its lines are all there in each case.
        let state = if started { ContainerState::ContainerRunning } else { self.status(&id).await.state() };
        self.container(which).stage = match state {
            ContainerState::ContainerCreated => Stage::Created,
            ContainerState::ContainerRunning => Stage::Started,
            ContainerState::ContainerExited => Stage::Stopped,
            // The daemon was killed in the middle of the start, so the outcome is unknown: a kubelet removes
            // such a container.
            ContainerState::ContainerUnknown => return self.remove(which).await,
        };
    }

    async fn exec(&mut self, which: usize) {
        let (mut client, id) = (self.client.clone(), self.container(which).id.clone());
        let command = async move {
            let answer = client.exec(&id, &["echo", "here"], 60).await?;
            let right = answer.exit_code == 0 && answer.stdout == b"here\n";
            right.then_some(()).ok_or_else(|| Status::unknown(format!("{answer:?}")))
        };
        if self.container(which).ending.is_some() {
            // The container may end meanwhile, and the command with it.
            self.counts.calls += 1;
            let ended = tokio::time::timeout(HUNG, command).await;
            assert!(ended.is_ok(), "client {}: ExecSync hangs", self.number);
        } else {
            let _ = self.answer("ExecSync", command).await;
        }
    }

    async fn stop(&mut self, which: usize) {
        if self.container(which).stage != Stage::Started {
            return;
        }
        let id = self.container(which).id.clone();
        self.insist("StopContainer", |mut client| {
            let id = id.clone();
            async move { client.stop(&id, 0).await }
        })
        .await;
        self.container(which).stage = Stage::Stopped;
        self.read_log(which, false).await;
    }

    async fn remove(&mut self, which: usize) {
        let container = self.pod().containers.remove(which);
        self.remove_id(container.id.clone()).await;
        let gone = self.client.status(&container.id).await;
        assert!(gone.is_err(), "client {}: {container:?} was removed and is {gone:?}", self.number);
    }

    async fn remove_id(&mut self, id: String) {
        self.insist("RemoveContainer", |mut client| {
            let id = id.clone();
            async move { client.remove(&id).await }
        })
        .await;
    }

    async fn remove_pod(&mut self) {
        let Some(pod) = self.pod.take() else { return };
        self.ledger.withdraw(&pod.id);
        self.insist("StopPodSandbox", |mut client| {
            let id = pod.id.clone();
            async move { client.stop_pod(&id).await }
        })
        .await;
        self.insist("RemovePodSandbox", |mut client| {
            let id = pod.id.clone();
            async move { client.remove_pod(&id).await }
        })
        .await;
    }

    async fn status(&mut self, id: &str) -> ContainerStatus {
        self.insist("ContainerStatus", |mut client| {
            let id = id.to_owned();
            async move { client.status(&id).await }
        })
        .await
    }

    /// Compares the daemon's view of the pod with the model.
    async fn look(&mut self) {
        for which in 0..self.pod().containers.len() {
            let id = self.container(which).id.clone();
            // Read before the call: a VMM killed meanwhile explains an exit, one killed later does not.
            let status = self.status(&id).await;
            let lost = self.is_lost();
            let wrong = self.container(which).wrong(&status, lost);
            assert!(wrong.is_none(), "client {}: {}", self.number, wrong.unwrap_or_default());
            if self.container(which).stage == Stage::Started
                && status.state() == ContainerState::ContainerExited
            {
                self.container(which).stage = Stage::Stopped;
                self.read_log(which, !lost).await;
            }
        }
    }

    /// Reads the log of an ended container. `whole`: it ended by itself.
    async fn read_log(&mut self, which: usize, whole: bool) {
        let id = self.container(which).id.clone();
        let path = self.status(&id).await.log_path;
        let log = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let kills = self.ledger.kills();
        let wrong = self.container(which).wrong_log(&log, whole, kills);
        assert!(wrong.is_none(), "client {}: {}", self.number, wrong.unwrap_or_default());
        self.counts.log_lines += log.lines().count();
        self.counts.log_bytes += log.len();
    }
}
