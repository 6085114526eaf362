//! Mounts of containers: made before the guest needs them, and undone with their containers.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use runtime_share::{Access, Bind, Propagation, ShareError};
use runtime_spec::{ContainerSpec, Mount, MountPropagation, share_name};

use super::{Script, World, container, life, pod};
use crate::PodErrorKind;
use crate::backend::{BackendError, ContainerDir, Shares, SoughtPlace};
use crate::container::mounts::Use;
use crate::record::{JoinedMount, SharedPlace};

#[derive(Debug)]
pub(crate) struct FakeShares(pub(crate) Arc<Script>);

#[async_trait]
impl Shares for FakeShares {
    async fn bind(&self, place: ContainerDir, binds: Vec<(usize, Bind)>) -> Result<(), BackendError> {
        self.0.step("shares.bind").await?;
        if let Some((_, bind)) = binds.iter().find(|(_, bind)| bind.source.starts_with("/missing")) {
            return Err(ShareError::Missing { path: bind.source.clone() }.into());
        }
        {
            let mut state = self.0.state();
            let known = state.binds.entry(place.container).or_default();
            assert!(known.is_empty());
            *known = binds;
        }
        self.0.done("shares.bind").await
    }

    async fn find_same(
        &self,
        _pod: ContainerDir,
        sought: Vec<SoughtPlace>,
    ) -> Result<Vec<JoinedMount>, BackendError> {
        self.0.step("shares.find_same").await?;
        let state = self.0.state();
        let is_same = |place: &SharedPlace, source: &Path| {
            let bound = state.binds.get(&place.container).into_iter().flatten();
            bound.into_iter().any(|(number, bind)| *number == place.number && bind.source == source)
        };
        let joined = sought.into_iter().filter_map(|one| {
            let mut found = one
                .candidates
                .into_iter()
                .filter(|(_, usable)| *usable == Use::AsIs || !state.mounted_below.contains(&one.source));
            let (place, _) = found.find(|(place, _)| is_same(place, &one.source))?;
            Some(JoinedMount { number: one.number, place })
        });
        Ok(joined.collect())
    }

    async fn unbind(&self, place: ContainerDir, numbers: Vec<usize>) -> Result<(), BackendError> {
        self.0.step("shares.unbind").await?;
        {
            let mut state = self.0.state();
            if let Some(bound) = state.binds.get_mut(&place.container) {
                bound.retain(|(number, _)| !numbers.contains(number));
            }
            state.binds.retain(|_, bound| !bound.is_empty());
        }
        self.0.done("shares.unbind").await
    }
}

fn host(host_path: &str) -> Mount {
    Mount { host_path: host_path.into(), container_path: "/data".into(), ..Mount::default() }
}

fn image(name: &str, sub_path: &str) -> Mount {
    Mount {
        image: name.into(),
        image_sub_path: sub_path.into(),
        container_path: "/image".into(),
        readonly: true,
        ..Mount::default()
    }
}

fn with(mounts: Vec<Mount>) -> ContainerSpec {
    ContainerSpec { mounts, ..container("app") }
}

#[tokio::test]
async fn host_paths_are_bound_as_asked_before_the_guest_mounts_them_and_go_with_the_container() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let read_only = Mount { readonly: true, ..host("/b") };
    let recursive = Mount { recursive_read_only: true, ..read_only.clone() };
    let late = Mount { propagation: MountPropagation::HostToContainer, ..host("/d") };
    let spec = with(vec![host("/a"), image("image7", ""), read_only, recursive, late]);
    let id = world.pods.create_container(&pod_id, spec).await.unwrap();
    let bound = world.script.state().binds[share_name(&id)].clone();
    let bind = |number, source: &str, access, propagation| {
        (number, Bind { source: source.into(), must_exist: false, access, propagation, owners: None })
    };
    let wanted = [
        bind(0, "/a", Access::ReadWrite, Propagation::Private),
        bind(2, "/b", Access::ReadOnly, Propagation::Private),
        bind(3, "/b", Access::ReadOnlyRecursive, Propagation::Private),
        bind(4, "/d", Access::ReadWrite, Propagation::HostToContainer),
    ];
    assert_eq!(bound, wanted);
    let seen = world.script.state().seen.clone();
    let place = |step: &str| seen.iter().position(|seen| seen == step).unwrap();
    assert!(place("shares.bind") < place("agent.create"));
    assert!(world.script.state().created.clone().unwrap().0.shared_mounts);
    world.pods.remove_container(&id).await.unwrap();
    assert_eq!(world.script.state().binds.len(), 0);
    // One without mounts of the host does not have the guest mount anything.
    let id = world.pods.create_container(&pod_id, container("plain")).await.unwrap();
    assert!(!world.script.state().created.clone().unwrap().0.shared_mounts);
    world.pods.remove_container(&id).await.unwrap();
    assert_eq!(world.script.count("shares.bind"), 1);
}

/// Sources and options of the mounts at `/data` in the last plan.
fn planned(world: &World) -> (String, bool) {
    let plan = world.script.state().created.clone().unwrap().0;
    let mounts = plan.oci.mounts().clone().unwrap();
    let mount = mounts.into_iter().find(|mount| mount.destination() == Path::new("/data")).unwrap();
    let is_read_only = mount.options().clone().unwrap().iter().any(|option| option == "ro");
    (mount.source().clone().unwrap().display().to_string(), is_read_only)
}

#[tokio::test]
async fn containers_of_a_pod_have_one_place_for_a_volume() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let create = async |name: &str, mount| {
        let spec = ContainerSpec { mounts: vec![mount], ..container(name) };
        world.pods.create_container(&pod_id, spec).await.unwrap()
    };
    let directories = || world.script.state().binds.keys().cloned().collect::<Vec<_>>();
    let first = create("app", host("/a")).await;
    let place = planned(&world);
    assert!(place.0.ends_with(&format!("{}/0", share_name(&first))) && !place.1, "{place:?}");
    let second = create("sidecar", host("/a")).await;
    assert_eq!(planned(&world), place);
    let reader = create("reader", Mount { readonly: true, ..host("/a") }).await;
    assert_eq!(planned(&world), (place.0.clone(), true), "the guest keeps it from writing");
    assert_eq!(directories(), [share_name(&first)]);
    // Another pod's guest has files of its own.
    let other = world.pods.run(pod("other")).await.unwrap();
    let spec = ContainerSpec { mounts: vec![host("/a")], ..container("app") };
    let apart = world.pods.create_container(&other, spec).await.unwrap();
    assert!(planned(&world).0.contains(share_name(&apart)));
    world.pods.remove_container(&apart).await.unwrap();
    // The place outlives the container that it was made for, and goes with its last user.
    world.pods.remove_container(&first).await.unwrap();
    let again = create("again", host("/a")).await;
    assert_eq!(planned(&world), place);
    for id in [&second, &again] {
        world.pods.remove_container(id).await.unwrap();
        assert_eq!(directories(), [share_name(&first)]);
    }
    world.pods.remove_container(&reader).await.unwrap();
    assert_eq!(directories(), Vec::<String>::new());
}

#[tokio::test]
async fn a_container_started_again_has_a_place_of_its_own_unless_others_run() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let run = async |name: &str| {
        let spec = ContainerSpec { mounts: vec![host("/a")], ..container(name) };
        let id = world.pods.create_container(&pod_id, spec).await.unwrap();
        world.pods.start_container(&id).await.unwrap();
        (id, planned(&world).0)
    };
    let (first, place) = run("first").await;
    world.script.vm().agent.end(&first, 1, false);
    world.ended(&first).await;
    let (second, its_own) = run("second").await;
    assert_ne!(its_own, place);
    let (_, sidecars) = run("sidecar").await;
    assert_eq!(sidecars, its_own);
    world.script.vm().agent.end(&second, 1, false);
    world.ended(&second).await;
    let (_, again) = run("third").await;
    assert_eq!(again, sidecars);
}

#[tokio::test]
async fn a_place_is_not_shared_by_mounts_that_differ() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.script.state().mounted_below.insert("/tree".into());
    let create = async |name: &str, mount| {
        let spec = ContainerSpec { mounts: vec![mount], ..container(name) };
        world.pods.create_container(&pod_id, spec).await.unwrap();
        planned(&world).0
    };
    let read_only = |path| Mount { readonly: true, ..host(path) };
    let writer = create("tree", host("/tree")).await;
    // The guest would keep it from writing to the mounts below as well.
    assert_ne!(create("tree-reader", read_only("/tree")).await, writer);
    assert_eq!(create("tree-writer", host("/tree")).await, writer);
    // The host keeps a pod of readers from writing.
    let reader = create("reader", read_only("/a")).await;
    let writer = create("writer", host("/a")).await;
    assert_ne!(writer, reader);
    // Readers see what writers map.
    assert_eq!(create("second-reader", read_only("/a")).await, writer);
}

#[tokio::test]
async fn a_container_that_fails_leaves_the_places_of_others() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let spec = |name: &str, mounts| ContainerSpec { mounts, ..container(name) };
    let first = world.pods.create_container(&pod_id, spec("app", vec![host("/a")])).await.unwrap();
    world.script.fail("agent.create");
    let own = Mount { container_path: "/own".into(), ..host("/own") };
    let failing = spec("sidecar", vec![host("/a"), own]);
    world.pods.create_container(&pod_id, failing).await.unwrap_err();
    let directories: Vec<_> = world.script.state().binds.keys().cloned().collect();
    assert_eq!(directories, [share_name(&first)]);
}

#[test]
fn a_place_in_use_is_known_to_the_next_daemon() {
    let (left, (pod_id, second, directory)) = life(None, async |world: &World| {
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        let spec = |name: &str| ContainerSpec { mounts: vec![host("/a")], ..container(name) };
        let first = world.pods.create_container(&pod_id, spec("app")).await.unwrap();
        let second = world.pods.create_container(&pod_id, spec("sidecar")).await.unwrap();
        world.pods.remove_container(&first).await.unwrap();
        (pod_id, second, share_name(&first).to_owned())
    });
    life(Some(left), async |world: &World| {
        let directories = || world.script.state().binds.keys().cloned().collect::<Vec<_>>();
        assert_eq!(directories(), [directory.as_str()]);
        let spec = ContainerSpec { mounts: vec![host("/a")], ..container("third") };
        let third = world.pods.create_container(&pod_id, spec).await.unwrap();
        world.pods.remove_container(&second).await.unwrap();
        assert_eq!(directories(), [directory.as_str()]);
        world.pods.remove_container(&third).await.unwrap();
        assert_eq!(directories(), Vec::<String>::new());
    });
}

#[tokio::test]
async fn files_of_the_node_are_reached_with_the_groups_of_the_pods_programs() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let create = async |name: &str, mounts, groups: &[u32]| {
        world.script.state().groups = groups.to_vec();
        let spec = ContainerSpec { mounts, ..container(name) };
        world.pods.create_container(&pod_id, spec).await.unwrap()
    };
    let sent = || -> Vec<String> {
        let seen = world.script.state().seen.clone();
        seen.iter().filter_map(|step| step.strip_prefix("vm.share_groups ")).map(str::to_owned).collect()
    };
    create("plain", vec![host("/a")], &[]).await;
    create("alone", vec![], &[5]).await;
    assert_eq!(sent(), Vec::<String>::new());
    let first = create("first", vec![host("/a")], &[3000, 7]).await;
    create("second", vec![host("/a")], &[7]).await;
    assert_eq!(sent(), ["{5, 7, 3000}"]);
    world.pods.remove_container(&first).await.unwrap();
    create("third", vec![host("/a")], &[8]).await;
    assert_eq!(sent(), ["{5, 7, 3000}", "{5, 7, 8}"]);
}

#[tokio::test]
async fn a_path_that_is_not_there_is_the_callers_mistake_and_is_named() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let error = world.pods.create_container(&pod_id, with(vec![host("/missing/x")])).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::InvalidArgument);
    assert!(error.chain().contains("/missing/x"), "{}", error.chain());
    assert_eq!(world.pods.containers().len(), 0);
}

#[tokio::test]
async fn a_container_that_fails_takes_its_mounts_and_volumes_along() {
    for step in ["shares.bind", "agent.create", "vm.share_groups {5}"] {
        let world = World::new().await;
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        world.script.fail(step);
        world.script.state().groups = vec![5];
        let spec = with(vec![host("/a"), image("image7", "")]);
        let error = world.pods.create_container(&pod_id, spec.clone()).await.unwrap_err();
        assert!(error.chain().contains(step), "{step}: {}", error.chain());
        assert_eq!(world.script.state().binds.len(), 0);
        world.script.repair();
        world.pods.create_container(&pod_id, spec).await.unwrap();
        assert_eq!(world.script.state().binds.len(), 1);
        world.pods.remove(&pod_id).await.unwrap();
    }
}

#[tokio::test]
async fn image_volumes_have_slots_that_are_held_as_long_as_the_container() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let spec = with(vec![image("image7", "etc"), image("image7", ""), image("image8", "")]);
    let id = world.pods.create_container(&pod_id, spec).await.unwrap();
    let (plan, slots) = world.script.state().created.clone().unwrap();
    assert_eq!(slots.image_volumes.len(), 3);
    assert_eq!(slots.image_volumes[0], slots.image_volumes[1]);
    let volumes: Vec<_> =
        plan.image_volumes.iter().map(|one| (one.source.as_str(), one.sub_path.as_str())).collect();
    let source = |number| format!("{}/{number}", proto_agent::guest_path::IMAGE_VOLUMES);
    assert_eq!(volumes, [(&*source(0), "etc"), (&*source(1), ""), (&*source(2), "")]);
    let view = world.pods.container(&id).unwrap();
    let ids: Vec<_> = view.volume_images.values().map(String::as_str).collect();
    assert_eq!(ids, ["sha256:image7", "sha256:image7", "sha256:image8"]);
    // Three slots are taken for good; the others can be filled, and no more.
    for number in 20..33 {
        let spec = ContainerSpec { image: format!("image{number}"), ..container(&format!("c{number}")) };
        world.pods.create_container(&pod_id, spec).await.unwrap();
    }
    let more = ContainerSpec { mounts: vec![image("image40", "")], ..container("more") };
    let error = world.pods.create_container(&pod_id, more.clone()).await.unwrap_err();
    assert!(error.to_string().starts_with("ImageVolumeMountFailed: "), "{error}");
    world.pods.remove_container(&id).await.unwrap();
    world.pods.create_container(&pod_id, more).await.unwrap();
}

#[tokio::test]
async fn an_image_volume_that_is_not_on_the_node_fails_as_the_kubelet_knows_it() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let spec = with(vec![image("image7", ""), image("nothing", "")]);
    let error = world.pods.create_container(&pod_id, spec).await.unwrap_err();
    assert!(error.chain().starts_with("ImageVolumeMountFailed: image \"nothing\""), "{}", error.chain());
}
