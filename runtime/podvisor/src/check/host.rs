//! Examines the host without running anything: files, devices, configuration.

use std::fs::OpenOptions;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

use runtime_cri::UpstreamConfig;
use runtime_net::Cni;
use runtime_spec::Kernel;
use runtime_streaming::Tls;

use super::finding::{Finding, Problem};
use crate::config::Config;
use crate::kvm::KVM;

/// The kernel's active security modules, separated by commas (Documentation/admin-guide/LSM/index.rst).
const SECURITY_MODULES: &str = "/sys/kernel/security/lsm";

/// Examines everything, in the order of a pod's start.
pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = vec![
        Finding { what: "user", outcome: root() },
        Finding { what: "guest image", outcome: guest_image(config) },
        Finding { what: "VMM", outcome: vmm(config) },
        Finding { what: KVM, outcome: kvm() },
        Finding { what: "/dev/net/tun", outcome: tun() },
        Finding { what: "cgroups", outcome: cgroups() },
        Finding { what: "Landlock", outcome: landlock(std::fs::read_to_string(SECURITY_MODULES)) },
        Finding { what: "CNI", outcome: cni(config) },
    ];
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let checked =
        runtime.map_err(|error| error.to_string()).and_then(|runtime| runtime.block_on(upstream.check()));
    match checked {
        Ok(()) => Ok(socket.to_string()),
        Err(why) => Err(Problem::new(why, "put both runtimes' directories on one file system")),
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
    Ok(config.paths.guest_image.display().to_string())
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

fn cgroups() -> Result<String, Problem> {
    match std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers") {
        Ok(controllers) => Ok(format!("v2 with {}", controllers.trim())),
        Err(_) => Err(Problem::new(
            "not cgroup v2",
            "boot with systemd.unified_cgroup_hierarchy=1 to have pods accounted on the host",
        )
        .minor()),
    }
}

/// A VMM without Landlock has one wall less around its paths.
fn landlock(modules: io::Result<String>) -> Result<String, Problem> {
    let remedy = "boot with landlock among the modules of lsm=; without it VMMs are kept from paths by their mount namespaces alone";
    match modules {
        Ok(modules) if modules.trim().split(',').any(|module| module == "landlock") => Ok("on".into()),
        Ok(modules) => {
            Err(Problem::new(format!("not among the kernel's {}", modules.trim()), remedy).minor())
        }
        Err(error) => Err(Problem::new(format!("{SECURITY_MODULES}: {error}"), remedy).minor()),
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
    fn a_kernel_without_landlock_is_a_note_that_says_what_is_missing() {
        assert_eq!(landlock(Ok("lockdown,capability,landlock,yama\n".into())).unwrap(), "on");
        for modules in [Ok("capability,yama,landlocked\n".into()), Err(io::ErrorKind::NotFound.into())] {
            let problem = landlock(modules).unwrap_err();
            assert!(problem.minor && problem.remedy.contains("lsm="), "{problem:?}");
        }
    }
}
