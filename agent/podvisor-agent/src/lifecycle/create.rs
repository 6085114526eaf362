//! CreateContainer: mounts the root, resolves the user, builds the container, and holds it before exec. If a
//! step fails, the steps before it are undone ([`mod@crate::lifecycle::remove`]).

use std::path::Path;
use std::sync::Arc;

use agent_container::devices;
use agent_container::exec::ExecTemplate;
use agent_container::guest_devices;
use agent_container::image_file;
use agent_container::launch::{Launch, LaunchKind, ProcessLimit};
use agent_container::limits;
use agent_container::spec::{self, GuestParts};
use agent_container::users::{self, GroupsPolicy, ResolvedUser};
use oci_spec::runtime::LinuxDevice;
use proto_agent::agent::CreateContainerRequest;

use crate::containers::{Container, ContainerError, Phase, cgroup_path};
use crate::launcher::{self, Deadline};
use crate::lifecycle::block_devices;
use crate::lifecycle::declared_volumes;
use crate::lifecycle::filter;
use crate::lifecycle::guest_volumes;
use crate::lifecycle::remove;
use crate::lifecycle::root;
use crate::lifecycle::stdio;
use crate::lifecycle::volumes;
use crate::memory_protection;
use crate::pod::Pod;
use crate::process::{Process, Role};
use crate::user_namespace::UserNamespace;

/// The user of a created container.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

/// Creates the container. On failure nothing of it remains.
pub(crate) async fn create(pod: &Pod, request: CreateContainerRequest) -> Result<Created, ContainerError> {
    let container = pod.containers.reserve(&request.container_id, request.image_slot)?;
    let image = match pod.images.acquire(request.image_slot).await {
        Ok(image) => image,
        Err(error) => {
            pod.containers.forget(container.id());
            return Err(error.into());
        }
    };
    match build(pod, &container, &image, &request).await {
        Ok(created) => Ok(created),
        Err(error) => {
            if let Err(undo) = remove::tear_down(pod, &container).await {
                tracing::warn!(container = container.id(), %undo, "a failed container could not be removed");
            }
            Err(error)
        }
    }
}

async fn build(
    pod: &Pod,
    container: &Arc<Container>,
    image: &Path,
    request: &CreateContainerRequest,
) -> Result<Created, ContainerError> {
    let bytes_max = Some(request.writable_layer_bytes).filter(|bytes| *bytes > 0);
    root::mount(pod, container, image, bytes_max).await?;
    let user = resolve_user(&container.rootfs(), request)?;
    let owner = pod.guest_ids(user.uid, user.gid)?;
    let namespace = pod.user_namespace.get().map(UserNamespace::path);
    let target = request.pid_target.as_str();
    let target = (!target.is_empty()).then(|| pod.containers.pid_namespace(target)).transpose()?;
    let devices = guest_devices(request).map_err(container.io("list the guest's devices"))?;
    let (rootfs, cgroup) = (container.rootfs(), cgroup_path(container.id()));
    let parts = GuestParts {
        rootfs: &rootfs,
        cgroup: &cgroup,
        user: &user,
        terminal: request.tty,
        pid_namespace: target.as_deref(),
        user_namespace: namespace.as_deref(),
        devices: &devices,
    };
    let mut spec = spec::container(&request.spec_json, parts)?;
    // Dropped once the container has its own mounts.
    let _mapped = volumes::mount(pod, container, &request.image_volumes, &mut spec).await?;
    let declared = declared_volumes::mount(pod, container, image, &request.declared_volumes, &mut spec);
    let _overlays = declared.await?;
    let _kept = guest_volumes::mount(pod, container, &request.guest_volumes, &mut spec).await?;
    pod.host_sockets.offer(container, &request.host_sockets, &mut spec)?;
    block_devices::add(pod, container, &request.block_devices, &mut spec).await?;
    if request.shared_mounts {
        pod.shared.mount().await?;
        pod.shared_places.mount(&pod.shared.work, container.id(), &spec).await?;
    }
    let groups = spec.process().as_ref().and_then(|process| process.user().additional_gids().clone());
    for gid in groups.iter().flatten() {
        pod.guest_ids(0, *gid)?;
    }
    let filter = filter::of(request, &spec)?;
    let _ = container.exec_template.set(ExecTemplate::of(&spec, filter.clone())?);

    let (terminal, stdin) = (request.tty, request.stdin);
    let stdio_spec = stdio::StdioSpec { terminal, stdin, buffered: true, uid: owner.0, gid: owner.1 };
    let (descriptors, pending) = stdio::make(stdio_spec, container.directory().join("console"))
        .map_err(container.io("make the standard streams"))?;
    let resources = spec.linux().as_ref().and_then(|linux| linux.resources().clone());
    let launch = Launch {
        limits: spec.process().as_ref().map(ProcessLimit::of).unwrap_or_default(),
        kind: LaunchKind::Create(Box::new(spec)),
        console_socket: pending.console(),
        filter,
    };
    let launched = launcher::launch(&pod.reaper, &launch, descriptors, Deadline::of_call()).await?;
    // The container's nodes exist now, so the rules may be put on the held container.
    let rules = resources.as_ref().and_then(|resources| resources.devices().as_deref()).unwrap_or_default();
    devices::restrict(container.cgroup(), rules)?;
    let files = request.cgroup_files.iter().map(|(file, value)| (file.clone(), value.clone()));
    limits::apply(container.cgroup(), &files.collect())?;
    memory_protection::renew(pod);
    pod.host_sockets.attach(&pod.shared.work, container, launched.pid).await?;
    let streams = pending.streams().await.map_err(container.io("receive the terminal"))?;
    let shared = request.shared_mounts.then(|| Arc::clone(&pod.shared));
    let role = Role::First { shared };
    let first = Process::follow(launched.pid, launched.exit, streams, container.cgroup().clone(), role);
    *container.phase() = Phase::Created { first, reports: launched.reports };
    Ok(Created { uid: user.uid, gid: user.gid, groups: groups.unwrap_or_default() })
}

fn resolve_user(rootfs: &Path, request: &CreateContainerRequest) -> Result<ResolvedUser, ContainerError> {
    let read = |path| image_file::read(rootfs, Path::new(path)).map(Option::unwrap_or_default);
    let policy = if request.strict_groups { GroupsPolicy::Strict } else { GroupsPolicy::Merge };
    Ok(users::resolve(&request.user, &read("etc/passwd")?, &read("etc/group")?, policy)?)
}

/// Lists the guest's device nodes, if the request asks for them.
fn guest_devices(request: &CreateContainerRequest) -> std::io::Result<Vec<LinuxDevice>> {
    if request.guest_devices { guest_devices::list(Path::new("/dev")) } else { Ok(Vec::new()) }
}
