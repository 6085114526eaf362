//! Builds a template: a VM of its own, without a pod ([`crate::unclaimed`]), is booted until its agent waits,
//! then saved and ended. The VM has neither network nor disk.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use runtime_spec::VolumeCache;

use super::files::in_memory;
use super::kept::Template;
use super::shape::TemplateShape;
use crate::backend::{BackendError, TemplateRequest, Vm};
use crate::blocking::{blocking_within, within};
use crate::error::PodError;
use crate::host::memory_file;
use crate::installed::InstalledFile;
use crate::node::Node;
use crate::unclaimed::{self, FILES_WITHIN};
use crate::vm_end;

/// How long the guest may take to boot. Generous: a software-emulated guest is slow, and pods come first.
const BOOTED_WITHIN: Duration = Duration::from_secs(240);

/// Boots and saves a VM of this shape.
pub(super) async fn build(node: &Arc<Node>, shape: &TemplateShape) -> Result<Template, PodError> {
    let id = unclaimed::begin(node).await?;
    let (vm, saved) = match unclaimed::spawn(node, &id, VolumeCache::default()).await {
        Ok(vm) => {
            let saved = save(node, &*vm, shape).await;
            (Some(vm), saved)
        }
        Err(error) => (None, Err(error)),
    };
    // Its memory is in the files now, or discarded.
    let failed = saved.is_err() && !node.templates.closing.has_begun();
    unclaimed::end(node, &id, vm.as_ref(), failed).await;
    saved
}

async fn save(node: &Arc<Node>, vm: &dyn Vm, shape: &TemplateShape) -> Result<Template, PodError> {
    const DOING: &str = "booting a template's VM";
    let failed = |error: BackendError| PodError::internal(DOING).because(error);
    let open = async |file: &InstalledFile| {
        let file = file.clone();
        blocking_within(FILES_WITHIN, &node.pools.installation, DOING, move || File::open(file.path())).await
    };
    let request = TemplateRequest {
        bounds: shape.bounds(),
        kernel: open(node.places.kernels.of(shape.kernel())).await?,
        root_image: node.root_image(DOING).await?,
    };
    let booting = async {
        tokio::select! {
            biased;
            () = node.templates.closing.begun() => Err(PodError::internal(format!("{DOING}: the daemon ends"))),
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
    let finishing = move || {
        let (memory, state) = (memory_file::finish(&memory)?, memory_file::finish(&state)?);
        Ok::<_, io::Error>(Template::new(memory, state, made))
    };
    blocking_within(FILES_WITHIN, &node.pools.installation, "sealing a template's files in memory", finishing)
        .await
}

/// The current key of the shape's template on this node; none if a part's build is unknown.
pub(super) async fn key(node: &Arc<Node>, shape: &TemplateShape) -> Result<Option<String>, PodError> {
    let (places, shape) = (node.places.clone(), shape.clone());
    let reading =
        move || Ok::<_, Infallible>(shape.key(&places.part_files().builds(), &super::shape::host()));
    let doing = "looking at the installation's files";
    blocking_within(FILES_WITHIN, &node.pools.installation, doing, reading).await
}
