//! Versions of the files of pods' VMs: kept across restarts, and compared with the installed ones.

use runtime_store::{Batch, Table};
use serde_json::Value;

use super::{World, life, pod};
use crate::{Part, PodState};

/// Replaces a file of the installation, as a package manager does.
fn replace(world: &World, name: &str) {
    let new = world.dir.path().join("new");
    std::fs::write(&new, format!("another {name}")).unwrap();
    std::fs::rename(new, world.dir.path().join(name)).unwrap();
}

async fn outdated(world: &World, pod_id: &str) -> Vec<Part> {
    world.pods.installed().await.unwrap().outdated(&world.pods.pod(pod_id).unwrap())
}

#[test]
fn pods_from_before_an_upgrade_are_outdated_after_it_and_new_ones_are_not() {
    let (left, old) = life(None, async |world: &World| {
        let old = world.pods.run(pod("old")).await.unwrap();
        let versions = world.pods.pod(&old).unwrap().versions.clone().unwrap();
        let releases = [&versions.vmm, &versions.kernel, &versions.agent].map(|part| part.release.as_str());
        assert_eq!(releases, ["0.9", "6.12", "0.9"]);
        assert_eq!(outdated(world, &old).await, []);
        for name in ["vmm", "root"] {
            replace(world, name);
        }
        assert_eq!(outdated(world, &old).await, [Part::Vmm, Part::Agent]);
        old
    });
    life(Some(left), async |world: &World| {
        let new = world.pods.run(pod("new")).await.unwrap();
        assert_eq!(outdated(world, &new).await, []);
        assert_eq!(outdated(world, &old).await, [Part::Vmm, Part::Agent]);
        world.pods.stop(&old).await.unwrap();
        assert_eq!(outdated(world, &old).await, []);
        for pod in [old, new] {
            world.pods.remove(&pod).await.unwrap();
        }
        world.assert_nothing_left();
    });
}

#[test]
fn a_pod_on_record_without_versions_is_outdated_in_every_part() {
    let (left, pod_id) = life(None, async |world: &World| {
        let pod_id = world.pods.run(pod("old")).await.unwrap();
        let store = world.node.records.store();
        let mut status: Value = store.get(Table::PodStatuses, &pod_id).unwrap().unwrap();
        assert!(status.as_object_mut().unwrap().remove("versions").is_some());
        store.commit(Batch::new().put(Table::PodStatuses, &pod_id, &status).unwrap()).unwrap();
        pod_id
    });
    life(Some(left), async |world: &World| {
        let view = world.pods.pod(&pod_id).unwrap();
        assert_eq!((view.state, &view.versions), (PodState::Ready, &None));
        assert_eq!(outdated(world, &pod_id).await, Part::ALL);
    });
}

#[test]
fn a_pod_starts_from_files_whose_build_cannot_be_read_and_counts_as_outdated() {
    life(None, async |world: &World| {
        // The fake needs no program, so nothing else notices.
        std::fs::remove_file(world.dir.path().join("vmm")).unwrap();
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        assert_eq!(outdated(world, &pod_id).await, [Part::Vmm]);
    });
}
