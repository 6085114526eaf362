//! Plugins are asked before a change, and notified after it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use runtime_spec::{ContainerSpec, ExitReason, Resources};

use super::{Script, World, container, pod};
use crate::plugins::{Asking, PluginRefusal, Plugins};
use crate::roster::events::EventKind;
use crate::{ContainerState, ContainerView, PodErrorKind, PodView};

/// A plugin that records its notifications, and refuses on the test's request.
#[derive(Clone, Debug, Default)]
struct FakePlugin(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    heard: Vec<String>,
    refuses: Option<&'static str>,
    /// Containers of the stopping pod, by their states.
    at_the_stop: Vec<ContainerState>,
    /// The view at the moment of a question.
    lists: Option<crate::Pods>,
}

impl FakePlugin {
    async fn world(&self) -> World {
        let script = Script::default();
        script.state().plugins = Some(Arc::new(self.clone()));
        let world = World::scripted(script).await;
        self.noted().lists = Some(world.pods.clone());
        world
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.0.lock().unwrap()
    }

    fn take_heard(&self) -> Vec<String> {
        std::mem::take(&mut self.noted().heard)
    }

    fn hear(&self, what: &str, name: &str) -> Result<(), PluginRefusal> {
        let mut noted = self.noted();
        noted.heard.push(format!("{what} {name}"));
        match noted.refuses == Some(what) {
            true => Err(PluginRefusal(format!("no {what} today"))),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Plugins for FakePlugin {
    fn hears(&self) -> bool {
        true
    }

    fn begin(&self) -> Box<dyn Asking> {
        Box::new(self.clone())
    }

    fn notice(&self, kind: EventKind, pod: &PodView, container: Option<&ContainerView>) {
        let name = container.map_or(&pod.spec.name, |container| &container.spec.name);
        let _ = self.hear(&format!("{kind:?}"), name);
    }

    async fn pod_stops(&self, pod: &PodView) {
        let _ = self.hear("stops", &pod.spec.name);
        let lists = self.noted().lists.clone().unwrap();
        let states = lists.containers().iter().map(|container| container.state).collect();
        self.noted().at_the_stop = states;
    }
}

#[async_trait]
impl Asking for FakePlugin {
    fn is_alone(&self) -> bool {
        false
    }

    async fn run_pod(&self, pod: &PodView) -> Result<(), PluginRefusal> {
        let lists = self.noted().lists.clone().unwrap();
        assert!(lists.pod(&pod.id).is_none(), "a pod that plugins are asked about is not listed");
        self.hear("run?", &pod.spec.name)
    }

    async fn create_container(
        &self,
        _: &PodView,
        container: &ContainerView,
    ) -> Result<ContainerSpec, PluginRefusal> {
        assert!(self.noted().lists.clone().unwrap().container(&container.id).is_none());
        self.hear("create?", &container.spec.name)?;
        let mut spec = container.spec.clone();
        spec.env.push(("FROM".into(), "plugin".into()));
        Ok(spec)
    }

    fn create_undone(&self, _: &PodView, container: &ContainerView) {
        let _ = self.hear("undone", &container.spec.name);
    }

    async fn start_container(&self, _: &PodView, container: &ContainerView) -> Result<(), PluginRefusal> {
        self.hear("start?", &container.spec.name)
    }

    async fn update_container(
        &self,
        _: &PodView,
        container: &ContainerView,
        update: Resources,
    ) -> Result<Resources, PluginRefusal> {
        self.hear("update?", &container.spec.name)?;
        Ok(Resources { cpu_shares: 77, ..update })
    }

    fn container_updated(&self, _: &PodView, container: &ContainerView) {
        let _ = self.hear("updated", &container.spec.name);
    }

    async fn update_pod(&self, pod: &PodView, _: &Resources, _: &Resources) -> Result<(), PluginRefusal> {
        self.hear("update pod?", &pod.spec.name)
    }

    fn pod_updated(&self, pod: &PodView) {
        let _ = self.hear("pod updated", &pod.spec.name);
    }
}

#[tokio::test]
async fn plugins_are_asked_and_hear_in_the_order_of_what_happens() {
    let plugin = FakePlugin::default();
    let world = plugin.world().await;
    let (pod_id, id) = world.with_container().await;
    let expected =
        ["run? web", "Created web", "Started web", "create? app", "Created app", "start? app", "Started app"];
    assert_eq!(plugin.take_heard(), expected);
    let limits = Resources { memory_limit_bytes: 1 << 26, ..Resources::default() };
    world.pods.update_container(&id, limits).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().resources.cpu_shares, 77);
    world.pods.limit_container(&id, Resources { cpu_shares: 5, ..Resources::default() }).await.unwrap();
    world.pods.update_pod(&pod_id, Resources::default(), Resources::default()).await.unwrap();
    let expected = ["update? app", "updated app", "update pod? web", "pod updated web"];
    assert_eq!(plugin.take_heard(), expected);
    world.script.vm().agent.end(&id, 0, false);
    world.ended(&id).await;
    world.pods.remove_container(&id).await.unwrap();
    assert_eq!(plugin.take_heard(), ["Stopped app", "Deleted app"]);
    world.pods.stop(&pod_id).await.unwrap();
    world.pods.stop(&pod_id).await.unwrap();
    world.pods.remove(&pod_id).await.unwrap();
    assert_eq!(plugin.take_heard(), ["Stopped web", "stops web", "Deleted web"]);
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_container_is_made_as_plugins_want_it() {
    let plugin = FakePlugin::default();
    let world = plugin.world().await;
    let (_, id) = world.with_container().await;
    let view = world.pods.container(&id).unwrap();
    assert_eq!(view.spec.env, [("FROM".to_owned(), "plugin".to_owned())]);
    let env = view.process.env().clone().unwrap();
    assert!(env.iter().any(|entry| entry == "FROM=plugin"), "{env:?}");
}

#[tokio::test]
async fn a_pod_that_stops_is_heard_once_its_containers_have_ended() {
    let plugin = FakePlugin::default();
    let world = plugin.world().await;
    let (pod_id, _) = world.with_container().await;
    plugin.take_heard();
    world.pods.stop(&pod_id).await.unwrap();
    assert_eq!(plugin.take_heard(), ["Stopped web", "Stopped app", "stops web"]);
    assert_eq!(plugin.noted().at_the_stop, [ContainerState::Exited]);
}

#[tokio::test]
async fn a_pod_that_plugins_refuse_leaves_nothing_and_may_be_asked_for_again() {
    let plugin = FakePlugin::default();
    let world = plugin.world().await;
    plugin.noted().refuses = Some("run?");
    let refused = world.pods.run(pod("web")).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.to_string().as_str()),
        (PodErrorKind::FailedPrecondition, "no run? today")
    );
    assert_eq!(plugin.take_heard(), ["run? web"]);
    world.assert_nothing_left();
    plugin.noted().refuses = None;
    world.pods.run(pod("web")).await.unwrap();
}

#[tokio::test]
async fn a_container_that_plugins_refuse_is_not_made() {
    let plugin = FakePlugin::default();
    let world = plugin.world().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    plugin.noted().refuses = Some("create?");
    plugin.take_heard();
    assert!(world.pods.create_container(&pod_id, container("app")).await.is_err());
    assert_eq!(plugin.take_heard(), ["create? app", "undone app"]);
    assert_eq!((world.pods.containers().len(), world.script.vm().agent.containers()), (0, 0));
    plugin.noted().refuses = None;
    world.pods.create_container(&pod_id, container("app")).await.unwrap();
}

#[tokio::test]
async fn a_start_that_plugins_refuse_is_a_start_error_and_its_container_ends() {
    let plugin = FakePlugin::default();
    let world = plugin.world().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    plugin.take_heard();
    plugin.noted().refuses = Some("start?");
    let refused = world.pods.start_container(&id).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.to_string().as_str()),
        (PodErrorKind::FailedPrecondition, "no start? today")
    );
    let view = world.pods.container(&id).unwrap();
    assert_eq!((view.state, view.exit_code), (ContainerState::Exited, 128));
    assert_eq!((view.reason, view.message.as_str()), (Some(ExitReason::StartError), "no start? today"));
    assert_eq!(plugin.take_heard(), ["start? app", "Stopped app"]);
    assert_eq!(world.script.count("agent.start"), 0);
    assert_eq!(world.script.count("agent.signal 9 all"), 1, "what holds its place in the guest goes");
    // No plugin is asked again about a container that has ended.
    let again = world.pods.start_container(&id).await.unwrap_err();
    assert!(again.to_string().contains("it has ended"), "{again}");
    assert_eq!(plugin.take_heard(), [""; 0]);
}

#[tokio::test]
async fn what_is_refused_anyway_no_plugin_hears_of() {
    let plugin = FakePlugin::default();
    let world = plugin.world().await;
    let (pod_id, id) = world.with_container().await;
    plugin.take_heard();
    let taken = world.pods.create_container(&pod_id, container("app")).await.unwrap_err();
    assert_eq!(taken.kind(), PodErrorKind::AlreadyExists);
    let missing = ContainerSpec { image: "none".into(), ..container("other") };
    let nonsense = ContainerSpec { working_dir: "here".into(), ..container("other") };
    for spec in [missing, nonsense] {
        assert!(world.pods.create_container(&pod_id, spec).await.is_err());
    }
    assert!(world.pods.start_container(&id).await.is_err());
    assert_eq!(plugin.take_heard(), [""; 0]);
    world.pods.stop(&pod_id).await.unwrap();
    plugin.take_heard();
    assert!(world.pods.create_container(&pod_id, container("late")).await.is_err());
    assert_eq!(plugin.take_heard(), [""; 0]);
}
