//! Every step, killed: for each call and each point in it, the daemon is killed there, its step fails there,
//! and the pod's VMM is killed or stopped there. After each of these, the view is consistent, the call can be
//! repeated until it succeeds, the pod beside noticed nothing, and after removal the node is as before.
//!
//! | what | where |
//! |---|---|
//! | the calls, and how a kubelet goes on | `call.rs` |
//! | the steps, and the choice of a share | `step.rs` |
//! | the pod beside | `beside.rs` |
//! | what passes the points that no step passes | `tour.rs` |
//!
//! `make test` takes a share of the steps, chosen by a fixed seed; `make soak` takes all.
//! `PODVISOR_STEPS_SEED` sets the seed, and `PODVISOR_STEPS` a prefix of the steps to take: `CreateContainer
//! vmm.plug 1 Abort`. `PODVISOR_STEPS_PART=2/4` takes the second quarter of all steps, to share them between
//! several nodes; the last part looks for the points passed only at the end of the whole run.

mod beside;
mod call;
mod step;
mod tour;

use std::collections::BTreeSet;
use std::time::Duration;

use aho_corasick::AhoCorasick;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto_cri::v1;
use tests_e2e::built::Built;
use tests_e2e::client::Client;
use tests_e2e::fail_points::PROGRAM;
use tests_e2e::inventory::Inventory;
use tests_e2e::wait::{WITHIN, until_seen, within};
use tests_e2e::{Host, traces};
use tonic::Status;

use self::beside::Beside;
use self::call::{Call, Subject, containers};
use self::step::{Fault, Part, Step, share, steps};
use crate::load;

/// Steps of a normal run, of `make load` and of `make soak`.
const STEPS: [usize; 3] = [8, 60, usize::MAX];

/// The default seed: the same steps in each run, so a difference shows a change.
const SEED: u64 = 1;

/// Longest time for any call. Only a hang takes so long: a frozen VMM is given up in less.
const CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Longest wait of a caller if a frozen VMM delays the call, like a kubelet's own deadline.
const CALLERS_PATIENCE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn every_step_killed() {
    let asked = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let seed = asked("PODVISOR_STEPS_SEED")
        .map_or(SEED, |seed| seed.parse().expect("PODVISOR_STEPS_SEED is a number"));
    let only = asked("PODVISOR_STEPS");
    let part =
        asked("PODVISOR_STEPS_PART").map(|part| Part::parse(&part).expect("PODVISOR_STEPS_PART is as 2/4"));
    let Some(mut scene) = Scene::start().await else { return };
    let mut all = Vec::new();
    for call in Call::ALL {
        if only
            .as_ref()
            .is_none_or(|only| format!("{call:?} ").starts_with(only.split_inclusive(' ').next().unwrap()))
        {
            all.extend(scene.learn(call).await);
        }
    }
    let count = all.len();
    let chosen = match (&only, part) {
        (Some(only), _) => {
            share(all.into_iter().filter(|step| step.to_string().starts_with(only)).collect(), seed, None)
        }
        (None, Some(part)) => part.of(share(all, seed, None)),
        (None, None) => share(all, seed, Some(load::size(STEPS)).filter(|count| *count < usize::MAX)),
    };
    let to_the_end = chosen.len() == count || part.is_some_and(Part::is_last);
    println!("steps: {} of {count}, PODVISOR_STEPS_SEED={seed}", chosen.len());
    for step in &chosen {
        println!("step: {step}");
        scene.take(step).await;
    }
    if only.is_none() {
        scene.tour().await;
        if to_the_end {
            scene.silence().await;
        }
    }
    let missing = scene.report(chosen.len());
    let late: &[&str] = if to_the_end { &[] } else { &tour::OF_THE_WHOLE_RUN };
    let elsewhere = |point: &str| late.contains(&point) || tour::OF_OTHER_NODES.contains(&point);
    let missing: Vec<_> = missing.iter().filter(|point| !elsewhere(point)).collect();
    assert!(only.is_some() || missing.is_empty(), "never passed: {missing:?}");
    scene.end().await;
}

#[test]
fn the_released_daemon_has_no_fail_point() {
    let Some(built) = Built::of_environment() else { return };
    let mut names: Vec<_> = points(&built).into_iter().collect();
    names.push("PODVISOR_FAIL_POINTS".to_owned());
    // One pass over each program, for many names in many megabytes take minutes in a software node.
    let search = AhoCorasick::new(&names).unwrap();
    let named_in = |program: &str| {
        let bytes = std::fs::read(built.bin.join(program)).unwrap();
        let found =
            search.find_overlapping_iter(&bytes).map(|found| names[found.pattern().as_usize()].clone());
        found.collect::<BTreeSet<_>>()
    };
    assert_eq!(
        named_in(PROGRAM),
        names.iter().cloned().collect(),
        "a name does not stand in a binary as it is"
    );
    assert_eq!(named_in("podvisor"), BTreeSet::new(), "a name is in what ships");
}

/// All points, as the program with fail points lists them.
fn points(built: &Built) -> BTreeSet<String> {
    let output =
        std::process::Command::new(built.bin.join(PROGRAM)).arg("--list-fail-points").output().unwrap();
    let points: BTreeSet<_> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    assert!(points.contains("store.commit"), "{points:?}");
    points
}

/// A host with a pod beside, and the node as it is between steps.
struct Scene {
    host: Host,
    beside: Beside,
    image: String,
    other_image: String,
    before: Inventory,
    /// VMMs existing between steps: the pod beside's, and those left in the node by a failed test.
    others: Vec<Pid>,
    kills: usize,
    missed: usize,
    again: usize,
}

impl Scene {
    async fn start() -> Option<Scene> {
        let mut host = Host::start_with_fail_points().await?;
        let image = host.client().pull(&host.busybox()).await.unwrap();
        let other_image = host.image("podvisor/steps:1");
        let layer = tests_registry::Layer::builder().file("data", 0o644, vec![7; 300_000]).build();
        let pushed =
            host.registry.push_image("podvisor/steps", "1", vec![layer], serde_json::json!({})).await;
        pushed.unwrap();
        let beside = Beside::start(&host, &image).await;
        // Every later daemon has found the pod beside, too.
        host.daemon.kill_and_restart().await.unwrap();
        beside.check(&mut host.client(), 1).await;
        let before = Inventory::take(host.dir(), &host.network, host.daemon.pid()).unwrap();
        let others = vmms();
        Some(Scene { host, beside, image, other_image, before, others, kills: 1, missed: 0, again: 0 })
    }

    /// Makes the call without a fault, and finds its steps.
    async fn learn(&mut self, call: Call) -> Vec<Step> {
        let mut subject = self.prepare(call).await;
        let mut client = self.host.client();
        self.order("");
        bounded(subject.make(&mut client, call)).await.unwrap();
        let passed = self.host.daemon.fail_points().passed().unwrap();
        self.clear(&subject, &format!("{call:?} without a fault")).await;
        steps(call, &passed)
    }

    async fn prepare(&self, call: Call) -> Subject {
        bounded(Subject::prepare(&self.host, call, &self.image, &self.other_image)).await.unwrap()
    }

    fn order(&self, orders: &str) {
        self.host.daemon.fail_points().order(orders).unwrap();
    }

    /// Takes one step, and checks all conditions after it.
    async fn take(&mut self, step: &Step) {
        let mut subject = self.prepare(step.call).await;
        let hit = match step.fault {
            Fault::Abort => self.abort(step, &mut subject).await,
            Fault::Error => self.fail(step, &mut subject).await,
            Fault::VmmKilled => self.lose_vmm(step, &mut subject, Signal::SIGKILL).await,
            Fault::VmmFrozen => self.lose_vmm(step, &mut subject, Signal::SIGSTOP).await,
        };
        if !hit {
            self.missed += 1;
            println!("step: {step}: was not reached");
        }
        let mut client = self.host.client();
        consistent(&mut client, step).await;
        if step.fault == Fault::VmmFrozen {
            // No call succeeds in a frozen VM; only removing it must succeed.
            self.clear(&subject, &step.to_string()).await;
            return;
        }
        // The call may fail again until the end of its VM is noticed.
        let repeated = within(WITHIN, async || bounded(subject.repeat(&mut client, step.call)).await).await;
        repeated.unwrap_or_else(|error| {
            panic!("{step}: cannot be repeated: {error}\n{}", self.host.daemon.log())
        });
        consistent(&mut client, step).await;
        self.clear(&subject, &step.to_string()).await;
    }

    /// The daemon is killed at the point.
    async fn abort(&mut self, step: &Step, subject: &mut Subject) -> bool {
        self.order(&format!("{} abort {}", step.point, step.nth));
        let _ = bounded(subject.make(&mut self.host.client(), step.call)).await;
        // The call's background work may continue after its answer.
        let hit = self.host.daemon.fail_points().withdraw().unwrap();
        if hit {
            self.host.daemon.ended().await.unwrap();
            self.host.daemon.kill_and_restart().await.unwrap();
            self.kills += 1;
        }
        hit
    }

    /// The point's step fails.
    async fn fail(&mut self, step: &Step, subject: &mut Subject) -> bool {
        self.order(&format!("{} error {}", step.point, step.nth));
        let _ = bounded(subject.make(&mut self.host.client(), step.call)).await;
        self.host.daemon.fail_points().withdraw().unwrap()
    }

    /// The daemon is held at the point, and the VMM of the call's pod gets a signal. Then the daemon goes on.
    async fn lose_vmm(&mut self, step: &Step, subject: &mut Subject, signal: Signal) -> bool {
        self.order(&format!("{} hang {}", step.point, step.nth));
        let mut client = self.host.client();
        let call = subject.make(&mut client, step.call);
        tokio::pin!(call);
        let points = self.host.daemon.fail_points();
        let held = tokio::select! {
            _ = &mut call => false,
            reached = points.reached() => { reached.unwrap(); true }
        };
        if !held {
            self.order("");
            return false;
        }
        let mut vmms = vmms();
        // A VMM may have ended meanwhile.
        vmms.retain(|vmm| !self.others.contains(vmm) && kill(*vmm, signal).is_ok());
        self.order("");
        // A start held before its VMM exists goes on normally, with its normal timeouts.
        let frozen = signal == Signal::SIGSTOP && !vmms.is_empty();
        let patience = if frozen { CALLERS_PATIENCE } else { CALL_TIMEOUT };
        let answered = tokio::time::timeout(patience, call).await;
        assert!(answered.is_ok() || frozen, "{step}: hangs\n{}", self.host.daemon.log());
        !vmms.is_empty()
    }

    /// Removes the subject, and checks that the node is as before, and that the pod beside noticed nothing.
    async fn clear(&mut self, subject: &Subject, step: &str) {
        let mut client = self.host.client();
        let removed = bounded(subject.remove(&mut client)).await;
        removed
            .unwrap_or_else(|error| panic!("{step}: cannot be removed: {error}\n{}", self.host.daemon.log()));
        let (dir, network, daemon) = (self.host.dir(), &self.host.network, self.host.daemon.pid());
        let left = Inventory::settle(&self.before, dir, network, daemon).await;
        assert!(
            left.is_empty(),
            "{step}: the node is not as it was:\n{}\n{}",
            left.join("\n"),
            self.host.daemon.log()
        );
        self.again = self.beside.check(&mut client, self.kills).await.again;
    }

    /// Prints the steps taken, and returns the points never passed.
    fn report(&self, taken: usize) -> Vec<String> {
        let built = Built::of_environment().unwrap();
        let hit: BTreeSet<_> =
            self.host.daemon.fail_points().all_passed().unwrap().into_iter().map(|p| p.point).collect();
        let all = points(&built);
        let unhit: Vec<_> = all.difference(&hit).cloned().collect();
        println!(
            "steps: {taken} taken, {} not reached; {} kills, {} chunks of the pod beside twice in its log; \
             {} points, {} passed, never passed: {}",
            self.missed,
            self.kills,
            self.again,
            all.len(),
            all.len() - unhit.len(),
            unhit.join(" ")
        );
        unhit
    }

    async fn end(self) {
        let mut client = self.host.client();
        client.remove_pod(&self.beside.pod).await.unwrap();
        self.host.stop().await.unwrap();
    }
}

/// The VMMs of this node.
fn vmms() -> Vec<Pid> {
    traces::vmms().unwrap().into_iter().map(|pid| Pid::from_raw(i32::try_from(pid).unwrap())).collect()
}

/// The outcome of calls with a time limit.
async fn bounded<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    tokio::time::timeout(CALL_TIMEOUT, call).await.unwrap_or_else(|_| panic!("a call hangs"))
}

/// Waits until lists and statuses agree, and each container's pod exists: a just started daemon still looks
/// for its VMs, and a VM's end is noticed a moment later.
async fn consistent(client: &mut Client, step: &Step) {
    until_seen(format!("lists and statuses to agree after {step}"), async || {
        look(client).await.unwrap_or_else(|error| Err(error.to_string()))
    })
    .await;
}

/// Compares lists and statuses.
async fn look(client: &mut Client) -> Result<Result<(), String>, Status> {
    let pods = client.pods().await?;
    let mut ready = BTreeSet::new();
    for pod in &pods {
        let status = client.pod_status(&pod.id).await?;
        if (&status.id, status.state(), &status.metadata) != (&pod.id, pod.state(), &pod.metadata) {
            return Ok(Err(format!("{pod:?} is listed, and its status is {status:?}")));
        }
        let uid = pod.metadata.as_ref().map(|metadata| metadata.uid.clone());
        if pod.state() == v1::PodSandboxState::SandboxReady && !ready.insert(uid) {
            return Ok(Err(format!("one pod is ready twice: {pods:?}")));
        }
    }
    for container in containers(client).await? {
        if !pods.iter().any(|pod| pod.id == container.pod_sandbox_id) {
            return Ok(Err(format!("a container of no pod: {container:?}")));
        }
        let status = client.status(&container.id).await?;
        let same = (&status.id, status.state(), &status.metadata)
            == (&container.id, container.state(), &container.metadata);
        // After an interrupted start it is unknown if the program ran, and the status says so.
        let unexplained = status.state() == v1::ContainerState::ContainerUnknown && status.message.is_empty();
        if !same || unexplained {
            return Ok(Err(format!("{container:?} is listed, and its status is {status:?}")));
        }
    }
    Ok(Ok(()))
}
