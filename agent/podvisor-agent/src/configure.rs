//! ConfigurePod: the first call to a booted guest. It brings a name, files, a clock, a random seed,
//! namespaces, a network and a scratch disk. The pod is configured once; [`crate::rpc`] refuses a second
//! call.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use agent_container::cgroup::CGROUP_ROOT;
use agent_container::launch::Failure;
use agent_container::syscall;
use nix::mount::MsFlags;
use proto_agent::agent::{ConfigurePodRequest, ConfigurePodResponse};
use proto_agent::guest_path;

use crate::balloon;
use crate::kernel_limits::{self, KernelLimits};
use crate::network::{self, NetworkError};
use crate::pause::{self, PauseError};
use crate::pause_end;
use crate::pod::Pod;
use crate::pod_files;
use crate::prepare::{self, PrepareError};
use crate::processors;
use crate::sysctl;
use crate::user_namespace::{UserNamespace, UserNamespaceError};

/// Size of the pod's /dev/shm if the host names none, as in other runtimes.
const SHM_BYTES: u64 = 64 * 1024 * 1024;

/// Why the pod could not be configured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigureError {
    #[error("`{0}` is no valid host name")]
    HostName(String),
    #[error("cannot set the host name")]
    SetHostName(#[source] nix::Error),
    #[error("cannot write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("`{0}` is no valid sysctl name")]
    SysctlName(String),
    #[error("cannot set the sysctl {name}")]
    Sysctl { name: String, source: io::Error },
    #[error("there is no seed for the random pool")]
    NoSeed,
    #[error("cannot seed the random pool")]
    Seed(#[source] io::Error),
    #[error("cannot set the clock")]
    Clock(#[source] io::Error),
    #[error("cannot mount {what}")]
    Mount { what: &'static str, source: nix::Error },
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Pause(#[from] PauseError),
    #[error(transparent)]
    UserNamespace(#[from] UserNamespaceError),
}

impl ConfigureError {
    /// Returns true if the request is at fault: another request would have succeeded.
    pub(crate) fn is_invalid_request(&self) -> bool {
        matches!(self, Self::NoSeed | Self::HostName(_) | Self::SysctlName(_) | Self::Sysctl { .. })
    }
}

/// Configures the pod. The random seed comes first, so that nothing draws random numbers before it.
pub(crate) async fn run(
    pod: &Arc<Pod>,
    request: &ConfigurePodRequest,
) -> Result<ConfigurePodResponse, ConfigureError> {
    seed(&request.random_seed)?;
    pod.clock.start(request.realtime_ns).map_err(ConfigureError::Clock)?;
    let limits = kernel_limits(request.memory_max_bytes);
    limits.raise();
    online_processors(pod, if request.vcpus == 0 { u32::MAX } else { request.vcpus });
    let devices = network::devices(request).await?;
    let first_network = File::open("/proc/thread-self/ns/net").map_err(NetworkError::Namespace)?;
    let root = enter_user_namespace(pod, request, &devices).await?;
    if pod.restored && request.user_namespace.is_none() {
        enter_network(pod, &devices).await?;
    }
    if pod.restored || request.user_namespace.is_some() {
        // A new network namespace starts with the kernel's default limits.
        limits.raise();
    }
    limit_tasks(request.pids_max, limits.threads())?;
    set_host_name(&request.hostname)?;
    write_files(request, root)?;
    mount_shm(request.shm_bytes, root)?;
    if pod.prepared.get().is_none() {
        prepare::files(request.scratch_slot, request.shared_slot).await?;
    }
    network::configure(request, &devices).await?;
    let response = apply_settings(request, root.0, &first_network)?;
    if request.shared_pid_namespace && request.user_namespace.is_none() {
        let launch = pod.reaper.launch();
        pause_end::end_guest_with(pause::keep_namespace()?, &launch, pod);
    }
    if request.balloon_slot != 0 {
        balloon::bind_later(request.balloon_slot);
    }
    Ok(response)
}

/// Makes the pod's user namespace, if the request asks for one, and enters its network. Returns the guest's
/// user and group of the pod's root.
async fn enter_user_namespace(
    pod: &Arc<Pod>,
    request: &ConfigurePodRequest,
    devices: &[String],
) -> Result<(u32, u32), ConfigureError> {
    let Some(asked) = request.user_namespace.as_ref() else { return Ok((0, 0)) };
    let launch = pod.reaper.launch();
    let made = UserNamespace::make(asked, request.shared_pid_namespace)?;
    if request.shared_pid_namespace {
        pause_end::end_guest_with(made.pause, &launch, pod);
    }
    drop(launch);
    network::move_to(made.network(), devices).await?;
    made.enter()?;
    network::loopback_up().await?;
    let root = made.root();
    // The cell is empty, because a pod is configured once.
    let _ = pod.user_namespace.set(made);
    Ok(root)
}

/// Enters a network namespace of the pod's own. The boot's namespace has a secret from boot time, and all
/// clones of a template would share it (`hash_mix` of `struct net`).
async fn enter_network(pod: &Pod, devices: &[String]) -> Result<(), ConfigureError> {
    let prepared = pod.prepared.get().and_then(|prepared| prepared.network.as_ref());
    let made = match prepared {
        Some(network) => network.try_clone().map_err(NetworkError::Namespace)?,
        None => network::make_namespace()?,
    };
    network::move_to(made.as_fd(), devices).await?;
    network::enter_namespace(made.as_fd())?;
    network::loopback_up().await?;
    Ok(())
}

fn seed(bytes: &[u8]) -> Result<(), ConfigureError> {
    if bytes.is_empty() {
        return Err(ConfigureError::NoSeed);
    }
    let random = File::options().write(true).open("/dev/urandom").map_err(ConfigureError::Seed)?;
    syscall::add_entropy(random.as_fd(), bytes).map_err(ConfigureError::Seed)
}

/// Limits of a guest with this maximum of memory, or with its current memory if that is more.
fn kernel_limits(memory_max_bytes: u64) -> KernelLimits {
    KernelLimits::of(memory_max_bytes.max(kernel_limits::memory_bytes()))
}

/// Number of threads reserved for the agent and the kernel, out of all. Without a reserve the agent could not
/// answer.
fn reserved(threads: u64) -> u64 {
    (threads / 8).clamp(32, 1024).min(threads / 2)
}

/// Limits the tasks of all containers together. With a limit of 0 only the guest's own limit applies.
fn limit_tasks(pids_max: u64, threads: u64) -> Result<(), ConfigureError> {
    let most = threads - reserved(threads);
    let limit = if pids_max == 0 { most } else { pids_max.min(most) };
    let path = format!("{CGROUP_ROOT}{}/pids.max", guest_path::CGROUP_PARENT);
    write(&path, limit.to_string().as_bytes())
}

/// Writes the files for the containers' mounts.
fn write_files(request: &ConfigurePodRequest, root: (u32, u32)) -> Result<(), ConfigureError> {
    let hostname = format!("{}\n", request.hostname);
    let failed = |path: &'static str| move |source| ConfigureError::File { path: path.into(), source };
    pod_files::mount().map_err(failed(guest_path::HOSTS))?;
    for (path, content) in [
        (guest_path::HOSTNAME, hostname.as_bytes()),
        (guest_path::HOSTS, &request.hosts[..]),
        (guest_path::RESOLV_CONF, &request.resolv_conf[..]),
    ] {
        pod_files::write(path, content, root).map_err(failed(path))?;
    }
    Ok(())
}

/// Brings up the pod's processors on a separate thread. The kernel takes milliseconds for each, and only a
/// container's program has to wait for them.
fn online_processors(pod: &Arc<Pod>, wanted: u32) {
    pod.bring_up.begin();
    let of_thread = Arc::clone(pod);
    let bring_up = move || {
        if let Err(error) = processors::set_online(wanted) {
            tracing::warn!(error = Failure::from_error(&error).message, "not all processors came up");
        }
        of_thread.bring_up.end();
    };
    let thread = std::thread::Builder::new().name("processors".into()).stack_size(64 * 1024);
    if let Err(error) = thread.spawn(bring_up) {
        tracing::warn!(%error, "no thread to bring up the processors");
        pod.bring_up.end();
    }
}

fn set_host_name(name: &str) -> Result<(), ConfigureError> {
    // HOST_NAME_MAX of Linux is 64.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err(ConfigureError::HostName(name.chars().take(64).collect()));
    }
    nix::unistd::sethostname(name).map_err(ConfigureError::SetHostName)
}

fn write(path: &str, bytes: &[u8]) -> Result<(), ConfigureError> {
    let failed = |source| ConfigureError::File { path: path.into(), source };
    File::create(path).and_then(|mut file| file.write_all(bytes)).map_err(failed)
}

fn mount_shm(bytes: u64, (uid, gid): (u32, u32)) -> Result<(), ConfigureError> {
    make_directory(guest_path::SHM)?;
    let bytes = if bytes == 0 { SHM_BYTES } else { bytes };
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NODEV;
    mount("shm", "tmpfs", guest_path::SHM, flags, &format!("mode=1777,uid={uid},gid={gid},size={bytes}"))
        .map_err(|source| ConfigureError::Mount { what: "the pod's shared memory", source })
}

/// Applies the sysctls of every pod, then the settings of plugins, then the pod's own sysctls: later ones
/// win. `root` is the guest's user of the pod's root, and `first_network` the kernel's first network
/// namespace.
fn apply_settings(
    request: &ConfigurePodRequest,
    root: u32,
    first_network: &File,
) -> Result<ConfigurePodResponse, ConfigureError> {
    let is_default = |name: &&String| request.default_sysctls.contains(name);
    let (defaults, own): (Vec<_>, Vec<_>) = request.sysctls.iter().partition(|(name, _)| is_default(name));
    set_sysctls(&defaults, root, first_network)?;
    let response = network::replay_settings(request);
    set_sysctls(&own, root, first_network)?;
    Ok(response)
}

fn set_sysctls(
    sysctls: &[(&String, &String)],
    root: u32,
    first_network: &File,
) -> Result<(), ConfigureError> {
    let mut all = Vec::new();
    for (name, value) in sysctls {
        let path = sysctl::path(name).ok_or_else(|| ConfigureError::SysctlName((*name).clone()))?;
        all.push((sysctl::rank(&path), path, name, value));
    }
    all.sort_unstable();
    for (_, path, name, value) in all {
        let written = sysctl::write(&path, value, root).or_else(|error| {
            if !sysctl::is_of_first_network(&path, &error) {
                return Err(error);
            }
            sysctl::write_in(first_network, &path, value)
        });
        written.map_err(|source| ConfigureError::Sysctl { name: (*name).clone(), source })?;
    }
    Ok(())
}

fn make_directory(path: &'static str) -> Result<(), ConfigureError> {
    fs::create_dir_all(path).map_err(|source| ConfigureError::File { path: path.into(), source })
}

fn mount(source: &str, kind: &str, target: &str, flags: MsFlags, data: &str) -> nix::Result<()> {
    nix::mount::mount(Some(source), target, Some(kind), flags, Some(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sysctls of the network that this thread sees afterwards.
    fn applied(request: ConfigurePodRequest, sysctls: &'static [&str]) -> Vec<String> {
        let in_guest = move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let network = File::open("/proc/thread-self/ns/net").unwrap();
            assert!(apply_settings(&request, 0, &network).unwrap().sysctl_failures.is_empty());
            let read = |path: &&str| fs::read_to_string(format!("/proc/sys/net/{path}")).unwrap();
            sysctls.iter().map(|path| read(path).trim().to_owned()).collect()
        };
        std::thread::spawn(in_guest).join().unwrap()
    }

    #[test]
    fn settings_of_plugins_win_over_those_of_every_pod_and_the_pods_own_win_over_both() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: a network namespace needs root");
            return;
        }
        let sysctl = |path: &str, value: &str| proto_agent::agent::Sysctl {
            path: path.into(),
            value: value.into(),
            ..Default::default()
        };
        let request = ConfigurePodRequest {
            sysctls: [
                ("net.ipv4.ip_forward", "1"),
                ("net.ipv4.ip_unprivileged_port_start", "0"),
                ("net.ipv4.ip_default_ttl", "7"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
            default_sysctls: vec!["net.ipv4.ip_forward".into(), "net.ipv4.ip_unprivileged_port_start".into()],
            network_sysctls: vec![
                sysctl("net/ipv4/ip_unprivileged_port_start", "512"),
                sysctl("net/ipv4/ip_default_ttl", "5"),
                sysctl("net/ipv4/conf/lo/forwarding", "0"),
            ],
            ..Default::default()
        };
        const SEEN: &[&str] = &[
            "ipv4/ip_forward",
            "ipv4/conf/lo/forwarding",
            "ipv4/ip_unprivileged_port_start",
            "ipv4/ip_default_ttl",
        ];
        assert_eq!(applied(request.clone(), SEEN), ["1", "0", "512", "7"]);
        // A daemon of an earlier build names no defaults.
        let request = ConfigurePodRequest { default_sysctls: Vec::new(), ..request };
        assert_eq!(applied(request, SEEN), ["1", "1", "0", "7"]);
    }

    #[test]
    fn containers_leave_threads_to_the_agent_and_have_some() {
        let left: Vec<u64> = [0, 1, 40, 256, 1000, 8192, 1 << 20].map(reserved).into();
        assert_eq!(left, [0, 0, 20, 32, 125, 1024, 1024]);
    }
}
