//! Metrics collected on request: pods and containers by state, the memory of VMs, the images' disk, whether
//! the configuration was accepted, and whether the upstream answers.

use std::sync::Arc;
use std::time::Duration;

use prometheus::proto::MetricFamily;
use runtime_pod::{ContainerState, ContainerView, Installed, Part, PodState, PodView};

use super::devices;
use super::figures::{Figures, family};
use crate::blocking::STATE;
use crate::runtime::status::ConfigurationView;
use crate::serve::Cri;

/// Time limit for reading the disk's usage. A Prometheus usually waits for ten seconds.
const DISK_WITHIN: Duration = Duration::from_secs(3);

pub(super) async fn figures(cri: &Cri) -> Vec<MetricFamily> {
    let (pods, containers) = (cri.pods.pods(), cri.pods.containers());
    let ready = pods.iter().filter(|pod| pod.state == PodState::Ready).map(|pod| pod.id.as_str());
    // Both at once: the timeouts of a hanging guest and a hanging VMM overlap.
    let (memory, devices) = tokio::join!(of_memory(cri, &pods), cri.pods.device_counts(ready));
    let mut all = vec![of_build(), of_pods(&pods), of_full_disks(&pods), of_containers(&containers), memory];
    all.extend(devices::figures(&devices));
    if let Ok(installed) = cri.pods.installed().await {
        all.extend(of_installed(&installed, &pods));
    }
    all.extend(of_records(cri.pods.outcomes_wait(), cri.pods.quarantined().len()));
    let disk = of_disk(cri).await;
    all.push(of_disk_answer(disk.is_some()));
    all.extend(disk.into_iter().flatten());
    {
        let configuration = cri.node.configuration.borrow();
        all.extend(of_configuration(&configuration));
        all.push(of_walls(&configuration));
    }
    all.extend(cri.upstream_is_up().map(of_upstream));
    all.into_iter().filter_map(family).flatten().collect()
}

fn of_build() -> Figures {
    Figures {
        name: "podvisor_build_info",
        help: "The daemon's version; the value is always 1.",
        labels: &["version"],
        values: vec![(vec![env!("CARGO_PKG_VERSION")], 1)],
    }
}

fn of_records(outcomes_wait: bool, quarantined: usize) -> [Figures; 2] {
    [
        Figures {
            name: "podvisor_records_waiting",
            help: "Whether outcomes of pods and containers wait for a disk that does not take them.",
            labels: &[],
            values: vec![(vec![], u64::from(outcomes_wait))],
        },
        Figures {
            name: "podvisor_records_quarantined",
            help: "Values on disk that could not be read, as of the daemon's start.",
            labels: &[],
            values: vec![(vec![], quarantined as u64)],
        },
    ]
}

fn of_pods(pods: &[Arc<PodView>]) -> Figures {
    let count = |state| pods.iter().filter(|pod| pod.state == state).count() as u64;
    Figures {
        name: "podvisor_pods",
        help: "Pods in VMs, by their state; unclean ones have leftovers that could not be removed.",
        labels: &["state"],
        values: vec![
            (vec!["ready"], count(PodState::Ready)),
            (vec!["not_ready"], count(PodState::NotReady)),
            (vec!["unclean"], pods.iter().filter(|pod| pod.unclean.is_some()).count() as u64),
        ],
    }
}

fn of_full_disks(pods: &[Arc<PodView>]) -> Figures {
    let waiting = pods.iter().filter(|pod| pod.full_disks > 0).count() as u64;
    Figures {
        name: "podvisor_pods_waiting_for_room",
        help: "Pods in VMs whose writes wait, since the file system of their disks is full.",
        labels: &[],
        values: vec![(vec![], waiting)],
    }
}

fn of_containers(containers: &[Arc<ContainerView>]) -> Figures {
    let states = [
        ("created", ContainerState::Created),
        ("running", ContainerState::Running),
        ("exited", ContainerState::Exited),
        ("unknown", ContainerState::Unknown),
    ];
    let count = |state| containers.iter().filter(|container| container.state == state).count() as u64;
    Figures {
        name: "podvisor_containers",
        help: "Containers in VMs, by their state.",
        labels: &["state"],
        values: states.map(|(name, state)| (vec![name], count(state))).into(),
    }
}

fn of_installed(installed: &Installed, pods: &[Arc<PodView>]) -> [Figures; 2] {
    let outdated: Vec<Vec<Part>> = pods.iter().map(|pod| installed.outdated(pod)).collect();
    let any = outdated.iter().filter(|parts| !parts.is_empty()).count() as u64;
    let with = |part| outdated.iter().filter(|parts| parts.contains(&part)).count() as u64;
    let parts = Part::ALL.into_iter().map(|part| (vec![part.name()], with(part)));
    [
        Figures {
            name: "podvisor_pods_outdated",
            help: "Pods in VMs, by the part that is not the installed one, or not known to be; any has each pod once.",
            labels: &["part"],
            values: parts.chain([(vec!["any"], any)]).collect(),
        },
        Figures {
            name: "podvisor_restart_needed",
            help: "Whether the daemon starts pods from files that have been replaced since its own start.",
            labels: &[],
            values: vec![(vec![], u64::from(installed.restart_needed))],
        },
    ]
}

async fn of_memory(cri: &Cri, pods: &[Arc<PodView>]) -> Figures {
    let ready = pods.iter().filter(|pod| pod.state == PodState::Ready);
    let given = ready.clone().map(|pod| pod.ledger.size.memory_bytes).sum();
    let used = cri.pods.usages_on_host(ready.map(|pod| pod.id.as_str())).await;
    let used = used.iter().map(|usage| usage.memory.usage).sum();
    Figures {
        name: "podvisor_vm_memory_bytes",
        help: "Memory of all VMs: given is the size of their RAM, used what they and their VMMs take of the node.",
        labels: &["kind"],
        values: vec![(vec!["given"], given), (vec!["used"], used)],
    }
}

fn of_disk_answer(answers: bool) -> Figures {
    Figures {
        name: "podvisor_disk_answers",
        help: "Whether the disk of images and scratch disks could be looked at in time.",
        labels: &[],
        values: vec![(vec![], u64::from(answers))],
    }
}

/// `None` if the disk does not answer in time.
async fn of_disk(cri: &Cri) -> Option<[Figures; 2]> {
    let (images, pods) = (cri.images.clone(), cri.pods.clone());
    let look = STATE.run(move || (images.count() as u64, images.usage().bytes, pods.scratch_usage().bytes));
    let Ok(Ok((count, image_bytes, scratch_bytes))) = tokio::time::timeout(DISK_WITHIN, look).await else {
        return None;
    };
    Some([
        Figures {
            name: "podvisor_images",
            help: "Images on the node.",
            labels: &[],
            values: vec![(vec![], count)],
        },
        Figures {
            name: "podvisor_disk_bytes",
            help: "Disk space in use: images with their blobs, and the pods' scratch disks.",
            labels: &["of"],
            values: vec![(vec!["images"], image_bytes), (vec!["scratch"], scratch_bytes)],
        },
    ])
}

fn of_configuration(view: &ConfigurationView) -> [Figures; 2] {
    [
        Figures {
            name: "podvisor_config_last_reload_successful",
            help: "Whether the configuration was taken when it was read last.",
            labels: &[],
            values: vec![(vec![], u64::from(!view.is_refused))],
        },
        Figures {
            name: "podvisor_config_restart_pending_keys",
            help: "Keys of the configuration whose values in the file count after a restart only.",
            labels: &[],
            values: vec![(vec![], view.waiting as u64)],
        },
    ]
}

fn of_walls(view: &ConfigurationView) -> Figures {
    Figures {
        name: "podvisor_walls_missing",
        help: "Whether the node's kernel lacks a wall around VMMs, as of the last reading of the configuration.",
        labels: &["wall"],
        values: view.walls.iter().map(|(name, why)| (vec![*name], u64::from(why.is_some()))).collect(),
    }
}

fn of_upstream(is_up: bool) -> Figures {
    Figures {
        name: "podvisor_upstream_up",
        help: "Whether the upstream runtime answers.",
        labels: &[],
        values: vec![(vec![], u64::from(is_up))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_its_figure_with_nothing_in_it() {
        let pods = [
            PodView { state: PodState::Ready, ..PodView::default() },
            PodView { unclean: Some("a disk".into()), ..PodView::default() },
        ]
        .map(Arc::new);
        assert_eq!(of_pods(&pods).values, [(vec!["ready"], 1), (vec!["not_ready"], 1), (vec!["unclean"], 1)]);
        assert!(of_containers(&[]).values.iter().all(|(_, count)| *count == 0));
        let text = super::super::text(&family(of_containers(&[])).unwrap()).unwrap();
        assert!(text.contains("podvisor_containers{state=\"running\"} 0"), "{text}");
    }

    #[test]
    fn a_pod_is_counted_for_each_part_that_is_outdated_and_once_for_any() {
        let pod = |vmm_pid| Arc::new(PodView { vmm_pid, ..PodView::default() });
        let [outdated, restart] = of_installed(&Installed::default(), &[pod(Some(7)), pod(None)]);
        assert_eq!(
            outdated.values,
            [(vec!["vmm"], 1), (vec!["kernel"], 1), (vec!["agent"], 1), (vec!["any"], 1)]
        );
        assert_eq!(restart.values, [(vec![], 0)]);
        let [nobody, _] = of_installed(&Installed::default(), &[]);
        assert!(nobody.values.iter().all(|(_, count)| *count == 0));
    }

    #[test]
    fn records_that_wait_for_the_disk_and_those_in_quarantine_are_counted() {
        let text = |outcomes_wait, quarantined| {
            let families = of_records(outcomes_wait, quarantined).into_iter().filter_map(family).flatten();
            super::super::text(&families.collect::<Vec<_>>()).unwrap()
        };
        assert!(text(true, 0).contains("podvisor_records_waiting 1\n"));
        assert!(text(false, 2).contains("podvisor_records_waiting 0\n"));
        assert!(text(false, 2).contains("podvisor_records_quarantined 2\n"));
    }

    #[test]
    fn a_configuration_that_is_refused_is_a_zero() {
        let text = |view: &ConfigurationView| {
            let families: Vec<_> = of_configuration(view).into_iter().filter_map(family).flatten().collect();
            super::super::text(&families).unwrap()
        };
        let taken = text(&ConfigurationView::default());
        assert!(taken.contains("\npodvisor_config_last_reload_successful 1\n"), "{taken}");
        let refused =
            text(&ConfigurationView { is_refused: true, waiting: 3, ..ConfigurationView::default() });
        assert!(refused.contains("\npodvisor_config_last_reload_successful 0\n"), "{refused}");
        assert!(refused.contains("\npodvisor_config_restart_pending_keys 3\n"), "{refused}");
    }

    #[test]
    fn a_wall_that_is_missing_is_a_one() {
        let walls = vec![("seccomp", None), ("landlock", Some("not there".into()))];
        let figures = of_walls(&ConfigurationView { walls, ..ConfigurationView::default() });
        assert_eq!(figures.values, [(vec!["seccomp"], 0), (vec!["landlock"], 1)]);
    }

    #[test]
    fn figures_without_labels_have_one_value() {
        let text = super::super::text(&family(of_upstream(true)).unwrap()).unwrap();
        assert!(text.ends_with("# TYPE podvisor_upstream_up gauge\npodvisor_upstream_up 1\n"), "{text}");
    }
}
