//! Builds a template: a VM of its own is booted until its agent waits, saved, and ended. The VM is none of a pod's, and has
//! neither network nor disk; its directories are among the pods', so that the next daemon sweeps them away, and ends the VMM,
//! where this one is killed.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use runtime_fail_points::{Point, pass};
use runtime_spec::VolumeCache;
use rustix::process::{Pid, setpriority_process};

use super::files::{self, in_memory, seal};
use super::kept::Template;
use super::shape::TemplateShape;
use crate::backend::{BackendError, SpawnRequest, TemplateRequest, Vm};
use crate::blocking::{blocking_within, within};
use crate::clock;
use crate::error::PodError;
use crate::host::logs;
use crate::host::logs::LogOwner;
use crate::installed::InstalledFile;
use crate::live;
use crate::node::Node;
use crate::vm_end;

/// How long files and directories may take to be made, opened or removed.
const FILES_WITHIN: Duration = Duration::from_secs(60);

/// How long the guest may take to boot. Generous: a software-emulated guest is slow, and pods come first.
const BOOTED_WITHIN: Duration = Duration::from_secs(240);

/// Nice value of the VMM: the VMs of pods come first.
const NICE: i32 = 10;

/// Boots and saves a VM of this shape.
pub(super) async fn build(node: &Arc<Node>, shape: &TemplateShape) -> Result<Template, PodError> {
    let id = clock::new_id();
    let dirs = [node.places.pod_state_dir(&id), node.places.pod_run_dir(&id)];
    let making = move || {
        pass(Point::PodDirectoryMake)?;
        dirs.into_iter().try_for_each(std::fs::create_dir_all)
    };
    let doing = "making a template's directories";
    blocking_within(FILES_WITHIN, &node.pools.state, doing, making).await?;
    let outcome = boot_and_save(node, &id, shape).await;
    let (places, of, failed) = (node.places.clone(), id.clone(), outcome.is_err());
    let removing = move || {
        if !failed {
            // Nobody wants to read the log of a VM that did what it should.
            let _ = files::remove(&places.pod_state_dir(&of));
        }
        places.remove_run_dir(&of)?;
        places.remove_state_dir(&of)
    };
    let doing = "removing a template's directories";
    if let Err(error) = blocking_within(FILES_WITHIN, &node.pools.state, doing, removing).await {
        tracing::warn!(id, error = error.chain(), "directories of a template stay until the next daemon");
    }
    outcome
}

async fn boot_and_save(node: &Arc<Node>, id: &str, shape: &TemplateShape) -> Result<Template, PodError> {
    let vm = spawn(node, id).await?;
    let saved = save(node, &*vm, shape).await;
    // Its memory is the files' now, or nobody's.
    live::end(&*vm).await?;
    saved
}

async fn spawn(node: &Arc<Node>, id: &str) -> Result<Arc<dyn Vm>, PodError> {
    let (log, console) = (node.places.pod_state_dir(id), node.places.pod_run_dir(id));
    let owner = LogOwner { pod: id.to_owned(), namespace: String::new(), name: "template".to_owned() };
    let make = move || {
        Ok::<_, io::Error>((
            logs::make(&log.join(logs::VMM), &owner)?,
            logs::make_console(&console.join(logs::CONSOLE))?,
        ))
    };
    let doing = "making the log of a template's VMM";
    let (log, console) = blocking_within(FILES_WITHIN, &node.pools.state, doing, make).await?;
    let request = SpawnRequest {
        id: id.to_owned(),
        dir: node.places.pod_run_dir(id),
        shared: node.places.pod_shared_dir(id),
        volume_cache: VolumeCache::default(),
        cgroups: Vec::new(),
        log,
        console,
    };
    let spawned = node.backends.vms.spawn(request).await;
    let vm = spawned.map_err(|error| PodError::internal("starting a template's VMM").because(error))?;
    let pid = i32::try_from(vm.pid()).ok().and_then(Pid::from_raw);
    if let Err(error) = setpriority_process(pid, NICE) {
        tracing::debug!(%error, "a template is built with the priority of pods");
    }
    Ok(vm)
}

async fn save(node: &Arc<Node>, vm: &dyn Vm, shape: &TemplateShape) -> Result<Template, PodError> {
    const DOING: &str = "booting a template's VM";
    let failed = |error: BackendError| PodError::internal(DOING).because(error);
    let open = async |file: &InstalledFile| {
        let file = file.clone();
        blocking_within(FILES_WITHIN, &node.pools.paths, DOING, move || File::open(file.path())).await
    };
    let request = TemplateRequest {
        bounds: shape.bounds(),
        kernel: open(node.places.kernels.of(shape.kernel())).await?,
        root_image: open(&node.places.root_image).await?,
    };
    let booting = async {
        tokio::select! {
            biased;
            booted = vm.boot_template(request) => booted.map_err(failed),
            report = vm.stopped() => Err(PodError::internal(format!("{DOING}: {}", vm_end::describe(&report)))),
        }
    };
    within(BOOTED_WITHIN, DOING, booting).await?;
    let made = SystemTime::now();
    let files = || Ok::<_, io::Error>((in_memory()?, in_memory()?));
    let in_memory = |error| PodError::internal("making a template's files in memory").because(error);
    let (memory, state) = files().map_err(in_memory)?;
    let saved = vm.save(&memory, &state).await;
    saved.map_err(|error| PodError::internal("saving a template's VM").because(error))?;
    seal(&memory).and_then(|()| seal(&state)).map_err(in_memory)?;
    Ok(Template { memory, state, made })
}

/// The key of the shape's template on this node now, and none where a part's build is not known.
pub(super) async fn key(node: &Arc<Node>, shape: &TemplateShape) -> Result<Option<String>, PodError> {
    let (places, shape) = (node.places.clone(), shape.clone());
    let reading =
        move || Ok::<_, Infallible>(shape.key(&places.part_files().builds(), &super::shape::host()));
    let doing = "looking at the installation's files";
    blocking_within(FILES_WITHIN, &node.pools.paths, doing, reading).await
}
