//! Examines the host without running anything: files, devices, configuration.

use std::fs::OpenOptions;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::Context;
use runtime_cri::{UpstreamConfig, UpstreamError};
use runtime_net::Cni;
use runtime_pod::{InstalledFile, check_belonging};
use runtime_spec::Kernel;
use runtime_streaming::Tls;
use runtime_vm::{Wall, walls};

use super::finding::{Finding, Problem};
use crate::config::{Config, Walls};
use crate::installation;
use crate::kvm::KVM;

/// Examines everything, in the order of a pod's start.
pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = vec![
        Finding { what: "user", outcome: root() },
        Finding { what: "guest image", outcome: guest_image(config) },
        Finding { what: "run directory", outcome: run_dir(config) },
        Finding { what: "VMM", outcome: vmm(config) },
        Finding { what: KVM, outcome: kvm() },
        Finding { what: "/dev/net/tun", outcome: tun() },
    ];
    findings.extend(walls().into_iter().map(|found| wall(found, config.isolation.walls)));
    findings.push(Finding { what: "CNI", outcome: cni(config) });
    if let Some(upstream) = config.upstream() {
        findings.push(Finding { what: "other runtime", outcome: other_runtime(&upstream) });
    }
    // Most streaming servers have no certificate.
    if let Some(tls) = config.streaming.tls() {
        let outcome = certificate(&tls, config.streaming.address.ip());
        findings.push(Finding { what: "streaming certificate", outcome });
    }
    findings
}

fn other_runtime(upstream: &UpstreamConfig) -> Result<String, Problem> {
    let socket = upstream.socket.display();
    if let Err(error) = UnixStream::connect(&upstream.socket) {
        return Err(Problem::new(
            format!("{socket}: {error}"),
            "start that runtime; until it answers, its pods are listed as they were last, and calls about them fail",
        ));
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Err(Problem::new(error.to_string(), "free memory or threads")),
    };
    match runtime.block_on(upstream.check()) {
        Ok(()) => Ok(socket.to_string()),
        Err(error) => Err(unusable(&error)),
    }
}

/// The other runtime's problem, with the remedy for it.
fn unusable(error: &UpstreamError) -> Problem {
    let problem = |remedy: &str| Problem::new(error.to_string(), remedy);
    match error {
        // Pods in VMs go on, as while that runtime is down.
        UpstreamError::NoCri { .. } => problem(
            "remove cri from disabled_plugins in its configuration and restart it, or set upstream.socket to another one",
        )
        .minor(),
        UpstreamError::Images { .. } => {
            problem("set paths.state to a directory on that file system, or move one of both")
        }
        UpstreamError::CgroupDriver { .. } => {
            problem("or remove cgroup.driver, and the kubelet gets that runtime's driver")
        }
    }
}

fn certificate(tls: &Tls, address: IpAddr) -> Result<String, Problem> {
    match tls.check(address) {
        Ok(()) => Ok(tls.certificate.display().to_string()),
        Err(error) => Err(Problem::new(
            format!("{:#}", anyhow::Error::from(error)),
            "set streaming.certificate and streaming.key to PEM files of one pair, issued for the streaming address",
        )),
    }
}

fn root() -> Result<String, Problem> {
    if nix::unistd::geteuid().is_root() {
        return Ok("root".into());
    }
    Err(Problem::new("not root", "run podvisor as root: it makes network namespaces and cgroups"))
}

fn guest_image(config: &Config) -> Result<String, Problem> {
    let templates = [config.scratch_template(), config.volume_template()];
    for path in [config.kernel(Kernel::Small), config.root_image()].into_iter().chain(templates) {
        if let Err(error) = std::fs::metadata(&path) {
            let why = format!("{}: {error}", path.display());
            return Err(Problem::new(why, "build it with `make guest-image`, or set paths.guest_image"));
        }
    }
    installation::check_kernels(config).map_err(|error| {
        Problem::new(format!("{error:#}"), "build it with `make full-kernel`, or set the handler's kernel")
    })?;
    unchanged(config)
        .map_err(|error| Problem::new(format!("{error:#}"), "install all files of one build again"))?;
    Ok(config.paths.guest_image.display().to_string())
}

/// Compares the files with their installation's digests, as the daemon does at its start.
fn unchanged(config: &Config) -> anyhow::Result<()> {
    let keep = |path: PathBuf| InstalledFile::keep(&path).with_context(|| path.display().to_string());
    let full = config.kernel(Kernel::Full);
    // No handler may need it.
    let full = InstalledFile::keep(&full).unwrap_or_else(|_| full.into());
    let (small, root_image) = (keep(config.kernel(Kernel::Small))?, keep(config.root_image())?);
    installation::check_digests(config, [&small, &full, &root_image])?;
    Ok(())
}

fn run_dir(config: &Config) -> Result<String, Problem> {
    match installation::check_run_dir(config) {
        Ok(()) => {}
        Err(error) => return Err(Problem::new(error.to_string(), "set paths.run to a shorter path")),
    }
    match check_belonging(&config.dirs()) {
        Ok(()) => Ok(config.paths.run.display().to_string()),
        Err(error) => Err(Problem::new(error.to_string(), "the daemon does not start before")),
    }
}

fn vmm(config: &Config) -> Result<String, Problem> {
    let path = config.vmm().map_err(|error| Problem::new(error.to_string(), "set paths.vmm"))?;
    match std::fs::metadata(&path) {
        Ok(_) => Ok(path.display().to_string()),
        Err(error) => Err(Problem::new(
            format!("{}: {error}", path.display()),
            "install podvisor-vmm beside podvisor, or set paths.vmm",
        )),
    }
}

fn kvm() -> Result<String, Problem> {
    open(Path::new(KVM), "load kvm_amd or kvm_intel; in a VM, ask for nested virtualization")
}

fn tun() -> Result<String, Problem> {
    open(Path::new("/dev/net/tun"), "load the tun module")
}

fn open(path: &Path, remedy: &str) -> Result<String, Problem> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => Ok("opens".into()),
        Err(error) => Err(Problem::new(error.to_string(), remedy)),
    }
}

/// A VMM without one of its walls has the others. Pods run all the same where the configuration lets them.
fn wall(wall: Wall, required: Walls) -> Finding {
    let outcome = wall.found.map_err(|why| match required {
        Walls::Report => Problem::new(why, remedy(wall.name)).minor(),
        Walls::Require => Problem::new(
            format!("{why}, and isolation.walls is \"require\": no pod starts"),
            remedy(wall.name),
        ),
    });
    Finding { what: title(wall.name), outcome }
}

/// The wall as a line's need.
fn title(name: &'static str) -> &'static str {
    match name {
        "landlock" => "Landlock",
        "cgroups" => "cgroups v2",
        other => other,
    }
}

fn remedy(name: &str) -> &'static str {
    match name {
        "landlock" => {
            "boot with landlock among the modules of lsm=; without it VMMs are kept from paths by their mount namespaces alone"
        }
        "cgroups" => {
            "boot with systemd.unified_cgroup_hierarchy=1 to have pods accounted and bounded on the host"
        }
        "seccomp" => "take a kernel with CONFIG_SECCOMP_FILTER; without it no VMM starts",
        _ => "take a kernel with CONFIG_NAMESPACES; without it no VMM starts",
    }
}

fn cni(config: &Config) -> Result<String, Problem> {
    let cni = Cni::new(config.cni.pod_networks());
    match cni.ready() {
        Ok(()) => Ok(format!("configured in {}", config.cni.conf_dir.display())),
        Err(error) => Err(Problem::new(
            format!("{:#}", anyhow::Error::from(error)),
            "install CNI plugins and a network configuration; `podvisor run` brings its own bridge",
        )
        .minor()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_that_is_missing_is_a_note_and_a_failure_where_it_is_required() {
        let landlock = |found| Wall { name: "landlock", found };
        let there = wall(landlock(Ok("landlock".into())), Walls::Require);
        assert_eq!(there.to_string(), "ok    Landlock: landlock");
        for (required, minor) in [(Walls::Report, true), (Walls::Require, false)] {
            let problem = wall(landlock(Err("no landlock".into())), required).outcome.unwrap_err();
            assert_eq!(problem.minor, minor);
            assert!(problem.why.starts_with("no landlock") && problem.remedy.contains("lsm="), "{problem:?}");
        }
    }

    #[test]
    fn each_problem_with_the_other_runtime_has_a_remedy_of_its_own() {
        let (socket, why) = (PathBuf::from("/run/o.sock"), String::from("it differs"));
        let images = unusable(&UpstreamError::Images { socket: socket.clone(), why: why.clone() });
        assert!(images.why.contains("/run/o.sock: it differs") && images.remedy.contains("paths.state"));
        let no_cri = unusable(&UpstreamError::NoCri { socket: socket.clone() });
        assert!(no_cri.minor && no_cri.remedy.contains("disabled_plugins"), "{no_cri:?}");
        let driver = unusable(&UpstreamError::CgroupDriver { socket, why });
        assert!(driver.remedy.contains("cgroup.driver"), "{driver:?}");
    }

    /// A configuration with a guest image of these files, all empty.
    fn with_guest_image(dir: &Path, names: &[&str], text: &str) -> Config {
        for name in names {
            std::fs::write(dir.join(name), "").unwrap();
        }
        let mut config: Config = toml::from_str(text).unwrap();
        config.paths.guest_image = dir.to_owned();
        config
    }

    const FILES: [&str; 4] = ["vmlinux", "root.erofs", "scratch.ext4", "volume.ext4"];

    #[test]
    fn a_handlers_missing_kernel_is_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let text = "[[handler]]\nname = \"big\"\nkernel = \"full\"\n";
        let config = with_guest_image(dir.path(), &FILES, text);
        let problem = guest_image(&config).unwrap_err();
        assert!(problem.why.starts_with("handler big asks for the kernel "), "{problem:?}");
        assert!(problem.why.contains("/vmlinux-full: ") && !problem.minor, "{problem:?}");
        std::fs::write(dir.path().join("vmlinux-full"), "").unwrap();
        guest_image(&config).unwrap();
    }

    #[test]
    fn a_file_that_has_changed_since_its_installation_is_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let config = with_guest_image(dir.path(), &FILES, "");
        guest_image(&config).unwrap();
        let list = |file: &str| format!("{}  {file}\n", "0".repeat(64));
        let write = |file: &str| std::fs::write(dir.path().join("SHA256SUMS"), list(file)).unwrap();
        for changed in ["vmlinux", "root.erofs"] {
            write(changed);
            let why = guest_image(&config).unwrap_err().why;
            assert!(why.contains(&format!("{changed} has changed since its installation")), "{why}");
        }
        write("other");
        guest_image(&config).unwrap();
    }

    #[test]
    fn a_run_directory_too_long_for_sockets_is_a_failure() {
        let mut config = Config::default();
        run_dir(&config).unwrap();
        config.paths.run = format!("/{}", "r".repeat(64)).into();
        let why = run_dir(&config).unwrap_err().why;
        assert_eq!(why, "paths.run has 65 bytes, and sockets' names allow 64 at most");
    }
}
