//! The walk itself: one daemon after the other on the same node. Each has an executor of its own, and its end
//! stops all tasks, like a kill. Time is the executor's and passes at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::{Builder, Handle};
use tokio::time::Instant;

use super::action::{Action, Ways};
use super::kept;
use super::log::{Past, check, output, read};
use super::model::{ContainerStage, MEANWHILE, Model, Name};
use super::observed::{agree, listed};
use super::perform::ANSWERED_WITHIN;
use super::permits::Under;
use crate::blocking::in_place;
use crate::clock;
use crate::tests::{Script, World};

/// How long the node may take to agree with the model and to settle after a failure: longer than all limits
/// of a recovery together.
const SETTLED_WITHIN: Duration = Duration::from_secs(900);
/// Interval between two early checks: less than the delay of late output.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Interval between two later checks.
const LOOK_LATER: Duration = Duration::from_millis(500);
/// Number of early checks.
const FIRST_LOOKS: u32 = 40;
/// A file system in memory, since every commit waits for the disk.
const MEMORY: &str = "/dev/shm";

/// How a daemon's life ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Killed,
    Finished,
}

/// The node shared by the daemons of a walk.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) dir: Arc<tempfile::TempDir>,
    pub(super) script: Arc<Script>,
}

#[derive(Debug)]
pub(super) struct Walk {
    pub(super) random: StdRng,
    pub(super) ways: Ways,
    shown: bool,
    place: Option<Place>,
    pub(super) model: Model,
    /// The actions during the last daemon's kill.
    pub(super) killed_in: Vec<Action>,
    /// Whether a daemon was killed during its recovery.
    recovery_struck: bool,
    /// A container with unknown limits.
    pub(super) unlimited: Option<Name>,
    /// The ids of pods with an answered start, or once listed as ready.
    pub(super) known: BTreeSet<String>,
    /// Makes files' names unique.
    pub(super) serial: usize,
    /// Logs by container.
    pub(super) logs: BTreeMap<String, String>,
    /// Containers running when a daemon was killed.
    ran_at_kill: BTreeSet<String>,
    history: Vec<String>,
    pub(super) actions: usize,
    pub(super) faults: usize,
    pub(super) kills: usize,
}

impl Walk {
    pub(super) fn new(seed: u64, shown: bool) -> Walk {
        clock::repeatable::seed(seed);
        in_place::want();
        let mut random = StdRng::seed_from_u64(seed);
        let ways = Ways::draw(&mut random);
        Walk {
            random,
            ways,
            shown,
            place: None,
            model: Model::default(),
            killed_in: Vec::new(),
            recovery_struck: false,
            unlimited: None,
            known: BTreeSet::new(),
            serial: 0,
            logs: BTreeMap::new(),
            ran_at_kill: BTreeSet::new(),
            history: Vec::new(),
            actions: 0,
            faults: 0,
            kills: 0,
        }
    }

    pub(super) fn points(&self) -> BTreeMap<String, usize> {
        self.place.as_ref().map(|place| place.script.state().points.clone()).unwrap_or_default()
    }

    pub(super) fn last_actions(&self) -> String {
        self.history[self.history.len().saturating_sub(25)..].join("\n")
    }

    pub(super) fn note(&mut self, text: String) {
        if self.shown {
            println!("{text}");
        }
        self.history.push(text);
    }

    pub(super) fn run(&mut self, actions: usize) -> Result<(), String> {
        loop {
            let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            let end = runtime.block_on(self.daemon(actions))?;
            drop(runtime);
            if end == End::Finished {
                return Ok(());
            }
            self.kills += 1;
            self.note("-- the next daemon".to_owned());
        }
    }

    /// One daemon's life.
    async fn daemon(&mut self, actions: usize) -> Result<End, String> {
        let Some(world) = self.open().await? else { return Ok(End::Killed) };
        while self.actions < actions {
            let next = self.ways.actions(&mut self.random, &self.model);
            let fault = self.ways.fault(&mut self.random);
            self.actions += next.len();
            if self.random.random_ratio(self.ways.breaks, 100) {
                world.script.state().breaks = self.random.random_range(1..4);
            }
            if self.perform(&world, &next, fault).await? == End::Killed {
                return Ok(End::Killed);
            }
        }
        for id in self.model.pods.values().map(|pod| pod.id.clone()).collect::<Vec<_>>() {
            world.pods.remove(&id).await.map_err(|error| format!("at the end: {}", error.chain()))?;
        }
        world.assert_nothing_left();
        tokio::time::sleep(SETTLED_WITHIN).await;
        match Handle::current().metrics().num_alive_tasks() {
            0 => Ok(End::Finished),
            tasks => Err(format!("{tasks} tasks go on though nothing is left")),
        }
    }

    /// Starts a daemon on the files of the one before. `None` if it was killed meanwhile.
    async fn open(&mut self) -> Result<Option<World>, String> {
        let Some(place) = self.place.clone() else { return self.first().await.map(Some) };
        if !self.recovery_struck {
            self.befall_the_node(&place);
        }
        // A lost value is only in the daemon's own log, and its removal is tried only once.
        let may_fail = !matches!(self.killed_in.first(), Some(Action::Damage(_)));
        let fault = self.ways.fault(&mut self.random).filter(|_| may_fail);
        if let Some((fault, points_before)) = fault {
            place.script.plan(fault, points_before);
        }
        let early = self.ways.early_call(&mut self.random, &self.model).filter(|_| may_fail);
        let calls = self.calls(early.as_slice(), true);
        self.killed_in.extend(early);
        let script = place.script.clone();
        let recovering = async {
            let begun = Instant::now();
            let world = World::begin(place.dir, place.script).await;
            let waited = begun.elapsed();
            let answering = futures::future::join_all(calls.iter().map(|call| call.make(&world)));
            let answers = tokio::time::timeout(ANSWERED_WITHIN, answering).await;
            let observed = settled(&world, None).await;
            (world, waited, answers, observed)
        };
        let recovered = tokio::select! {
            biased;
            () = script.killed() => None,
            recovered = recovering => Some(recovered),
        };
        let struck = script.end_plan();
        self.recovery_struck |= struck.is_some();
        let Some((world, waited, answers, observed)) = recovered else {
            self.note(format!("   killed while it recovers: {struck:?}"));
            return Ok(None);
        };
        let answers = answers.map_err(|_| format!("{early:?}: an early call is left waiting"))?;
        self.note(format!("   early: {early:?} {answers:?}"));
        self.remember(&early.into_iter().zip(answers).collect::<Vec<_>>(), &calls);
        if waited > Duration::ZERO {
            return Err(format!("the daemon serves nobody for {waited:?} after its start"));
        }
        let observed = observed?;
        self.note(format!("   recovered, {struck:?}: {observed:?}"));
        if world.node.roster.is_busy() {
            return Err("a pod is still being recovered".to_owned());
        }
        script.state().crashed.clear();
        if let Some(name) = self.unlimited.take() {
            let mib = observed.container(name).map_or(0, |one| one.memory_mib);
            self.model.change(name, |one| one.memory_mib = mib);
        }
        let recovery_struck = std::mem::take(&mut self.recovery_struck);
        let under = Under { actions: &self.killed_in, known: &self.known, recovery_struck };
        self.model.permits(under, &observed)?;
        self.model = observed;
        kept::check(&world)?;
        self.check_logs(&world)?;
        Ok(Some(world))
    }

    async fn first(&mut self) -> Result<World, String> {
        let memory = Path::new(MEMORY);
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let world = World::made_in(tempfile::tempdir_in(parent).unwrap()).await;
        let mut state = world.script.state();
        state.output = output();
        (state.late, state.held_bytes) = (self.ways.late, self.ways.held_bytes);
        drop(state);
        self.place = Some(Place { dir: world.dir.clone(), script: world.script.clone() });
        Ok(world)
    }

    /// The daemon is killed. Everything published stays valid: clients have seen it.
    pub(super) fn killed(&mut self, world: &World, actions: &[Action]) -> Result<End, String> {
        let mut seen = listed(world)?;
        for (number, pod) in &mut seen.pods {
            let silent = self.model.is_silent(*number);
            pod.silent = pod.ready && (pod.silent || silent);
        }
        self.model.permits(Under { actions, known: &self.known, recovery_struck: true }, &seen)?;
        for pod in seen.pods.values() {
            self.known.extend(pod.ready.then(|| pod.id.clone()));
            let open = pod.containers.values().filter(|one| !matches!(one.stage, ContainerStage::Exited(_)));
            self.ran_at_kill.extend(open.map(|one| one.id.clone()));
        }
        self.model = seen;
        self.killed_in = actions.to_vec();
        Ok(End::Killed)
    }

    /// Checks the logs of all containers.
    pub(super) fn check_logs(&mut self, world: &World) -> Result<(), String> {
        for (number, pod) in &self.model.pods {
            for (container, one) in &pod.containers {
                let Some(view) = world.pods.container(&one.id) else { continue };
                let moved = world.script.state().moved_logs.get(&one.id).cloned().unwrap_or_default();
                let whole =
                    matches!(one.stage, ContainerStage::Exited(0..=MEANWHILE)) && view.started_at_ns > 0;
                let past = Past { whole, killed: self.ran_at_kill.contains(&one.id) };
                check(&read(&moved, &view.log_path), past)
                    .map_err(|why| format!("container {:?}: {why}", (number, container)))?;
            }
        }
        Ok(())
    }
}

/// Waits until the fakes agree with the lists, and the lists with one of the models where some are given.
pub(super) async fn settled(world: &World, models: Option<&[Model]>) -> Result<Model, String> {
    if models.is_none() {
        tokio::time::sleep(SETTLED_WITHIN).await;
    }
    let start = Instant::now();
    let mut looks = 0;
    loop {
        let observed = listed(world)?;
        let agreed = agree(world, &observed);
        let as_wanted = models.is_none_or(|models| models.contains(&observed));
        if (agreed.is_ok() && as_wanted) || start.elapsed() > SETTLED_WITHIN {
            return agreed.map(|()| observed);
        }
        looks += 1;
        tokio::time::sleep(if looks < FIRST_LOOKS { LOOK_EVERY } else { LOOK_LATER }).await;
    }
}
