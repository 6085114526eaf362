//! A node made of fakes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runtime_spec::{ContainerSpec, HandlerConfig, PodSpec};
use runtime_store::{Store, Table};
use tokio::runtime::Builder;

use super::Script;
use super::disks::FakeDisks;
use super::host_sockets::FakeSockets;
use super::mounts::FakeShares;
use super::state_disk::StateDisk;
use super::vm::{FakeImages, FakeNetwork, FakeVms};
use super::volumes::FakeVolumes;
use crate::backend::Backends;
use crate::blocking::Pools;
use crate::config::{Kernels, StartConfig};
use crate::container::filters::Filters;
use crate::dirs::DaemonDirs;
use crate::installed::InstalledFile;
use crate::node::{Node, Places, Records, StartRules};
use crate::roster::Roster;
use crate::spares::kept::Spares;
use crate::templates::kept::Templates;
use crate::unclaimed::ids::UnclaimedIds;
use crate::{ContainerState, ContainerView, Pods, recover, spares, templates};

/// The remains of a killed daemon: files, and the fakes' state.
pub(crate) type Left = (Arc<tempfile::TempDir>, Arc<Script>);

/// A daemon, and everything outliving it.
pub(crate) struct World {
    pub(crate) dir: Arc<tempfile::TempDir>,
    pub(crate) script: Arc<Script>,
    pub(crate) node: Arc<Node>,
    pub(crate) pods: Pods,
}

impl World {
    pub(crate) async fn new() -> World {
        World::made_in(tempfile::tempdir().unwrap()).await
    }

    /// The first daemon of a node with its files in `dir`.
    pub(crate) async fn made_in(dir: tempfile::TempDir) -> World {
        World::made_with(dir, Script::default()).await
    }

    /// The first daemon of a node with strict cgroups.
    pub(crate) async fn strict() -> World {
        let script = Script::default();
        script.state().strict_cgroups = true;
        World::made_with(tempfile::tempdir().unwrap(), script).await
    }

    /// The first daemon of a node with this script.
    pub(crate) async fn scripted(script: Script) -> World {
        World::made_with(tempfile::tempdir().unwrap(), script).await
    }

    /// The files of a node without a daemon so far.
    pub(crate) fn files() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        World::fill(&dir);
        dir
    }

    fn fill(dir: &tempfile::TempDir) {
        for name in ["vmm", "kernel", "root", "scratch", "volume"] {
            std::fs::write(dir.path().join(name), vec![1; 4096]).unwrap();
        }
        std::fs::write(dir.path().join("resolv.conf"), "nameserver 9.9.9.9\n").unwrap();
    }

    pub(crate) async fn made_with(dir: tempfile::TempDir, script: Script) -> World {
        World::fill(&dir);
        World::open(Arc::new(dir), Arc::new(script)).await
    }

    /// A daemon started on existing files, after the recovery of its pods.
    pub(crate) async fn open(dir: Arc<tempfile::TempDir>, script: Arc<Script>) -> World {
        let world = World::begin(dir, script).await;
        world.until(|world| !world.node.roster.is_busy()).await;
        world
    }

    /// A daemon started on existing files.
    pub(crate) async fn begin(dir: Arc<tempfile::TempDir>, script: Arc<Script>) -> World {
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("state/pods")).unwrap();
        std::fs::create_dir_all(at("run/pods")).unwrap();
        let mut records = Records::new(Store::open(&at("store.redb")).unwrap());
        records.set_disk(StateDisk::of(script.clone()));
        let share_all_volumes = script.state().share_all_volumes;
        let template = script.state().template;
        let spare_vms = script.state().spare_vms;
        let spare_vmms = script.state().spare_vmms;
        let host_sockets = script.state().host_sockets.clone();
        let plugins = script.plugins();
        let earlier = script.state().earlier;
        let node = Arc::new(Node {
            places: Places {
                dirs: DaemonDirs { state_dir: at("state"), run_dir: at("run") },
                vmm_binary: at("vmm").into(),
                kernels: Kernels { small: at("kernel").into(), full: at("full-kernel").into() },
                root_image: at("root").into(),
                scratch_template: InstalledFile::from(at("scratch")).into(),
                cgroup_root: at("cgroup"),
                resolv_conf: at("resolv.conf"),
                resolved_conf: at("resolved.conf"),
            },
            start: StartRules::new(StartConfig {
                handlers: vec![HandlerConfig {
                    name: "kvm".into(),
                    scratch_bytes: 1 << 20,
                    share_all_volumes,
                    template,
                    spare_vms,
                    host_sockets,
                    ..Default::default()
                }],
                default_handler: Some("kvm".into()),
                strict_cgroups: script.state().strict_cgroups,
                spare_vmms,
                walls_missing: Vec::new(),
            }),
            records,
            pools: Pools::default(),
            roster: Roster::heard_by(plugins.clone()),
            templates: Templates::default(),
            unclaimed: UnclaimedIds::default(),
            spares: Spares::default(),
            filters: Filters::default(),
            root_image: Arc::default(),
            plugins,
            backends: Backends {
                network: Arc::new(FakeNetwork(script.clone())),
                vms: Arc::new(FakeVms(script.clone())),
                images: Arc::new(FakeImages(script.clone())),
                shares: Arc::new(FakeShares(script.clone())),
                disks: Arc::new(FakeDisks(script.clone())),
                sockets: Arc::new(FakeSockets::new(script.clone())),
                volumes: Arc::new(FakeVolumes::new(script.clone(), at("volume"))),
            },
        });
        recover::recover(&node, earlier).await.unwrap();
        templates::open(&node);
        spares::look(&node);
        World { dir, script, pods: Pods::on(node.clone()), node }
    }

    /// Lets the disk of the state take no more changes, or take them again.
    pub(crate) fn fill_disk(&self, full: bool) {
        self.node.records.disk().fill(full);
    }

    /// A ready pod with one running container.
    pub(crate) async fn with_container(&self) -> (String, String) {
        let pod_id = self.pods.run(pod("web")).await.unwrap();
        let id = self.pods.create_container(&pod_id, container("app")).await.unwrap();
        self.pods.start_container(&id).await.unwrap();
        (pod_id, id)
    }

    /// Nothing of any pod is left: not on the host, not on disk, not in the lists.
    pub(crate) fn assert_nothing_left(&self) {
        assert_eq!(self.script.state().networks.len(), 0, "networks");
        assert_eq!(self.script.running().len(), 0, "vms");
        assert_eq!(self.pods.pods().len(), 0, "listed pods");
        assert_eq!(self.pods.containers().len(), 0, "listed containers");
        assert_eq!(self.records(), Vec::<String>::new(), "records on disk");
        assert_eq!(self.directories(), 0, "directories of pods");
    }

    /// How many directories of pods there are.
    pub(crate) fn directories(&self) -> usize {
        ["state/pods", "run/pods"].iter().map(|dir| entries(&self.dir.path().join(dir))).sum()
    }

    /// All records, as "table/key".
    pub(crate) fn records(&self) -> Vec<String> {
        let store = self.node.records.store();
        let keys = |table| store.list::<serde_json::Value>(table).unwrap().values.into_iter();
        let all = Table::ALL.into_iter();
        all.flat_map(|table| keys(table).map(move |(key, _)| format!("{table:?}/{key}"))).collect()
    }

    /// The container's status on record.
    pub(crate) fn status(&self, id: &str) -> serde_json::Value {
        let statuses = self.node.records.store().list(Table::ContainerStatuses).unwrap();
        statuses.values.into_iter().find(|(key, _)| key == id).unwrap().1
    }

    /// Waits for the container's end.
    pub(crate) async fn ended(&self, id: &str) -> Arc<ContainerView> {
        let entry = self.node.roster.container(id).unwrap();
        let mut ended = entry.ended.clone();
        tokio::time::timeout(Duration::from_secs(30), ended.wait_for(|ended| *ended)).await.unwrap().unwrap();
        let view = self.pods.container(id).unwrap();
        assert_eq!(view.state, ContainerState::Exited);
        view
    }

    /// Waits until `done`.
    pub(crate) async fn until(&self, done: impl Fn(&World) -> bool) {
        let waiting = async {
            while !done(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("it comes to that");
    }

    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join("logs").join(name)).unwrap()
    }

    /// A pod with a log directory.
    pub(crate) fn logged_pod(&self, name: &str) -> PodSpec {
        PodSpec { log_directory: Some(self.dir.path().join("logs")), ..pod(name) }
    }
}

/// Runs one daemon's life, and returns everything outliving it. The daemon has an executor of its own. Its
/// end stops all tasks, like a kill.
pub(crate) fn life<T>(before: Option<Left>, life: impl AsyncFnOnce(&World) -> T) -> (Left, T) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (world, outcome) = runtime.block_on(async {
        let world = match before {
            Some((dir, script)) => World::open(dir, script).await,
            None => World::new().await,
        };
        let outcome = life(&world).await;
        (world, outcome)
    });
    let left = (world.dir.clone(), world.script.clone());
    drop(runtime);
    drop(world);
    (left, outcome)
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

pub(crate) fn pod(name: &str) -> PodSpec {
    PodSpec {
        name: name.into(),
        namespace: "default".into(),
        uid: format!("uid-{name}"),
        ..PodSpec::default()
    }
}

pub(crate) fn container(name: &str) -> ContainerSpec {
    ContainerSpec {
        name: name.into(),
        image: "image1".into(),
        log_path: Some(format!("{name}.log")),
        ..ContainerSpec::default()
    }
}
