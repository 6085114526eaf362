//! Leases on images: held while a VM has the image, over restarts too, and dropped with the plug or the VM.

use std::collections::BTreeMap;

use super::{World, container, life, pod};
use runtime_spec::ContainerSpec;

const IMAGE: &str = "sha256:image1";

fn leases(world: &World) -> BTreeMap<String, usize> {
    world.script.state().leases.clone()
}

fn held(count: usize) -> BTreeMap<String, usize> {
    BTreeMap::from([(IMAGE.to_owned(), count)])
}

#[test]
fn an_image_is_held_from_its_plug_to_the_end_of_its_vm() {
    life(None, async |world: &World| {
        let (pod_id, id) = world.with_container().await;
        world.pods.create_container(&pod_id, container("second")).await.unwrap();
        assert_eq!(leases(world), held(1), "one for each VM");
        world.pods.remove_container(&id).await.unwrap();
        assert_eq!(leases(world), held(1), "it stays plugged");
        world.pods.remove(&pod_id).await.unwrap();
        assert_eq!(leases(world), BTreeMap::new());
    });
}

#[test]
fn an_image_that_was_removed_is_unplugged_with_its_last_container() {
    life(None, async |world: &World| {
        let (pod_id, first) = world.with_container().await;
        let second = world.pods.create_container(&pod_id, container("second")).await.unwrap();
        world.script.state().removed_images.insert(IMAGE.to_owned());
        world.pods.remove_container(&first).await.unwrap();
        assert_eq!((leases(world), world.script.count("vm.unplug")), (held(1), 0));
        world.pods.remove_container(&second).await.unwrap();
        assert_eq!((leases(world), world.script.count("vm.unplug")), (BTreeMap::new(), 1));
    });
}

#[test]
fn a_plug_that_fails_holds_nothing_unless_the_vm_has_the_image() {
    life(None, async |world: &World| {
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        world.script.state().failing.insert("vm.plug_image".into());
        world.pods.create_container(&pod_id, container("app")).await.unwrap_err();
        assert_eq!(leases(world), BTreeMap::new());
        world.script.state().failing.clear();
        world.script.state().unheard = true;
        world.pods.create_container(&pod_id, container("app")).await.unwrap_err();
        assert_eq!(leases(world), held(1), "the plug was done, and its answer lost");
    });
}

#[test]
fn a_restart_takes_the_leases_of_all_pods_before_their_users_are_said_to_be_known() {
    let (left, pod_id) = life(None, async |world: &World| {
        let (pod_id, _) = world.with_container().await;
        let other = ContainerSpec { image: "image2".into(), ..container("other") };
        world.pods.create_container(&pod_id, other).await.unwrap();
        pod_id
    });
    let both = BTreeMap::from([(IMAGE.to_owned(), 1), ("sha256:image2".to_owned(), 1)]);
    let mut state = left.1.state();
    state.leases.clear();
    state.users_known_with = None;
    drop(state);
    life(Some(left), async |world: &World| {
        world.until(|world| world.script.state().users_known_with.is_some()).await;
        assert_eq!(world.script.state().users_known_with, Some(both.clone()));
        world.pods.stop(&pod_id).await.unwrap();
        assert_eq!(leases(world), BTreeMap::new());
    });
}
