//! The walk itself: one daemon after the other on the same node, each with an executor of its own, whose end takes all
//! its tasks along, as a kill would. Time is the executor's and passes at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use runtime_spec::{ContainerSpec, PodSpec};
use tokio::runtime::Builder;

use super::action::{Action, draw_fault};
use super::model::{Answer, ContainerStage, Model, Name};
use super::observed::{LINES, agree, check_log, listed};
use crate::clock;
use crate::tests::{Fault, Script, World, container, pod};

/// Grace of a stop.
const GRACE: Duration = Duration::from_secs(1);
/// How long the node may take to agree with the model, and what a failure left to come to rest.
const SETTLED_WITHIN: Duration = Duration::from_secs(180);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A file system in memory, since every commit waits for the disk.
const MEMORY: &str = "/dev/shm";

/// How a daemon's life ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Killed,
    Finished,
}

/// The node that the daemons of a walk have one after the other.
#[derive(Debug)]
struct Place {
    dir: Arc<tempfile::TempDir>,
    script: Arc<Script>,
}

#[derive(Debug)]
pub(super) struct Walk {
    random: StdRng,
    shown: bool,
    place: Option<Place>,
    model: Model,
    /// The action in which the last daemon was killed.
    killed_in: Action,
    /// The ids of pods whose start was answered.
    known: BTreeSet<String>,
    /// Makes log files' names unique.
    serial: usize,
    logs: BTreeMap<String, String>,
    history: Vec<String>,
    pub(super) actions: usize,
    pub(super) faults: usize,
    pub(super) kills: usize,
}

impl Walk {
    pub(super) fn new(seed: u64, shown: bool) -> Walk {
        clock::repeatable::seed(seed);
        Walk {
            random: StdRng::seed_from_u64(seed),
            shown,
            place: None,
            model: Model::default(),
            killed_in: Action::Kill,
            known: BTreeSet::new(),
            serial: 0,
            logs: BTreeMap::new(),
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

    fn note(&mut self, text: String) {
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
            self.actions += 1;
            let action = Action::draw(&mut self.random, &self.model);
            let fault = draw_fault(&mut self.random);
            if self.perform(&world, action, fault).await? == End::Killed {
                self.killed_in = action;
                return Ok(End::Killed);
            }
        }
        for id in self.model.pods.values().map(|pod| pod.id.clone()).collect::<Vec<_>>() {
            world.pods.remove(&id).await.map_err(|error| format!("at the end: {}", error.chain()))?;
        }
        world.assert_nothing_left();
        Ok(End::Finished)
    }

    /// Starts a daemon on what the one before left. `None` where it was killed meanwhile.
    async fn open(&mut self) -> Result<Option<World>, String> {
        let Some(Place { dir, script }) = &self.place else {
            let memory = Path::new(MEMORY);
            let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
            let world = World::made_in(tempfile::tempdir_in(parent).unwrap()).await;
            world.script.state().output = LINES.map(|line| format!("{line}\n")).concat().into_bytes();
            self.place = Some(Place { dir: world.dir.clone(), script: world.script.clone() });
            return Ok(Some(world));
        };
        let (dir, script) = (dir.clone(), script.clone());
        let fault = draw_fault(&mut self.random);
        if let Some((fault, points_before)) = fault {
            script.plan(fault, points_before);
        }
        let world = World::begin(dir, script.clone()).await;
        let observed = tokio::select! {
            biased;
            () = script.killed() => None,
            observed = settled(&world, None) => Some(observed),
        };
        let struck = script.end_plan();
        let Some(observed) = observed else {
            self.note(format!("   killed while it recovers: {struck:?}"));
            return Ok(None);
        };
        let observed = observed?;
        self.note(format!("   recovered, {struck:?}: {observed:?}"));
        if struck.is_none() {
            self.model.permits(self.killed_in, &observed, &self.known)?;
        } else {
            self.model.permits_after_recovery(self.killed_in, &observed, &self.known)?;
        }
        self.model = observed;
        Ok(Some(world))
    }

    async fn perform(
        &mut self,
        world: &World,
        action: Action,
        fault: Option<(Fault, usize)>,
    ) -> Result<End, String> {
        if let Some((fault, points_before)) = fault {
            world.script.plan(fault, points_before);
        }
        if action == Action::Kill {
            world.script.end_plan();
            return Ok(End::Killed);
        }
        let full = matches!(fault, Some((Fault::FullDisk, _)));
        world.fill_disk(full);
        let answer = tokio::select! {
            biased;
            () = world.script.killed() => None,
            answer = self.call(world, action) => Some(answer),
        };
        world.fill_disk(false);
        let Some(answer) = answer else {
            self.note(format!("{action:?}: killed at {:?}", world.script.end_plan()));
            return Ok(End::Killed);
        };
        let expected = self.model.answer(action);
        let mut model = self.model.clone();
        if let (Answer::Done, Ok(id)) = (expected, &answer) {
            model.apply(action, id.clone());
        }
        let observed = settled(world, fault.is_none().then_some(&model)).await;
        let struck = world.script.end_plan().or_else(|| full.then(|| (Fault::FullDisk, String::new())));
        self.note(format!("{action:?}, {struck:?}: {answer:?}"));
        match struck {
            Some((Fault::Cut, _)) => return Ok(End::Killed),
            Some(_) => {
                self.faults += 1;
                let observed = observed?;
                self.model.permits(action, &observed, &self.known)?;
                self.model = observed;
                // A client asks again where it was refused for the fault.
                if answer.is_err() && expected == Answer::Done {
                    return Box::pin(self.perform(world, action, None)).await;
                }
            }
            None => {
                if answer.is_ok() != (expected == Answer::Done) {
                    return Err(format!(
                        "{action:?} was answered by {answer:?}, not {expected:?}: {:?}",
                        self.model
                    ));
                }
                let observed = observed?;
                if observed != model {
                    return Err(format!("{action:?}: the lists have {observed:?}, not {model:?}"));
                }
                self.model = model;
                if let Action::End(name, _) | Action::StopContainer(name) = action {
                    self.check_log(world, name)?;
                }
            }
        }
        Ok(End::Finished)
    }

    /// Makes the call, or does to the guest what the action says. Returns the id of what is new.
    async fn call(&mut self, world: &World, action: Action) -> Result<Option<String>, String> {
        let pods = &world.pods;
        let pod_id =
            action.pod().and_then(|pod| self.model.pods.get(&pod)).map_or("none", |pod| &pod.id).to_owned();
        let id_of = |name: Name| self.model.container_id(name).unwrap_or("none").to_owned();
        let answer = match action {
            Action::RunPod(number) => {
                let logs = Some(world.dir.path().join("logs"));
                let run = pods.run(PodSpec { log_directory: logs, ..pod(&number.to_string()) }).await;
                self.known.extend(run.clone().ok());
                run.map(Some)
            }
            Action::StopPod(_) => pods.stop(&pod_id).await.map(|()| None),
            Action::RemovePod(_) => pods.remove(&pod_id).await.map(|()| None),
            Action::Create((_, number)) => {
                self.serial += 1;
                let log = format!("{}.log", self.serial);
                let image = format!("image{}", self.random.random_range(0..3));
                let name = number.to_string();
                let spec = ContainerSpec { log_path: Some(log.clone()), image, ..container(&name) };
                let made = pods.create_container(&pod_id, spec).await;
                if let Ok(id) = &made {
                    self.logs.insert(id.clone(), log);
                }
                made.map(Some)
            }
            Action::Start(name) => pods.start_container(&id_of(name)).await.map(|()| None),
            Action::StopContainer(name) => pods.stop_container(&id_of(name), GRACE).await.map(|()| None),
            Action::RemoveContainer(name) => pods.remove_container(&id_of(name)).await.map(|()| None),
            Action::Exec(name) => {
                let command = vec!["echo".to_owned(), "x".to_owned()];
                pods.exec_sync(&id_of(name), command, None).await.map(|_| None)
            }
            Action::End(..) | Action::CrashVm(_) => {
                let pid = pods.pod(&pod_id).and_then(|pod| pod.vmm_pid);
                let vm = pid.and_then(|pid| world.script.state().vms.get(&pid).cloned());
                match (action, vm) {
                    (Action::End(name, code), Some(vm)) => vm.agent.end(&id_of(name), code, false),
                    (Action::CrashVm(_), Some(vm)) => vm.crash(""),
                    _ => {}
                }
                Ok(None)
            }
            Action::Kill => Ok(None),
        };
        answer.map_err(|error| error.chain())
    }

    /// A program that ended while its VM ran has all its lines in the log.
    fn check_log(&self, world: &World, name: Name) -> Result<(), String> {
        let Some(log) = self.model.container_id(name).and_then(|id| self.logs.get(id)) else { return Ok(()) };
        let path = world.dir.path().join("logs").join(log);
        let ended = matches!(self.model.stage(name), Some(ContainerStage::Exited(0..4)));
        check_log(&std::fs::read_to_string(path).unwrap_or_default(), ended)
    }
}

/// Waits until the fakes agree with the lists, and the lists with the model where one is given.
async fn settled(world: &World, model: Option<&Model>) -> Result<Model, String> {
    if model.is_none() {
        tokio::time::sleep(SETTLED_WITHIN).await;
    }
    let start = tokio::time::Instant::now();
    loop {
        let observed = listed(world);
        let agreed = agree(world, &observed);
        let as_wanted = model.is_none_or(|model| *model == observed);
        if (agreed.is_ok() && as_wanted) || start.elapsed() > SETTLED_WITHIN {
            return agreed.map(|()| observed);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
