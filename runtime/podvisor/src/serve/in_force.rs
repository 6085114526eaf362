//! The parts of the daemon with a configuration that can change at run time, and the way to change it.

use anyhow::Context;
use runtime_image::{Images, Pinned, RegistryConfig};
use runtime_pod::{Pods, StartConfig};
use runtime_spec::{HandlerConfig, HandlerKind};
use runtime_vm::Wall;

use super::metrics::Figures;
use super::node::CniNetwork;
use super::reload::TakeUp;
use crate::config::{Config, Walls, filter};
use crate::installation;
use crate::logging::LogFilter;

/// The parts of a daemon with a changing configuration.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) pods: Pods,
    pub(super) images: Images,
    pub(super) network: CniNetwork,
    pub(super) figures: Figures,
    pub(super) log: LogFilter,
}

impl TakeUp for Parts {
    async fn take_up(&mut self, config: &Config) -> anyhow::Result<()> {
        // First everything that can fail, so a failure leaves everything unchanged.
        let start = start_config(config)?;
        let filter = filter::parse(&config.log.level).map_err(anyhow::Error::msg).context("log.level")?;
        self.figures.move_to(config.metrics.address).await?;
        if let Err(error) = self.log.set(filter) {
            tracing::warn!(%error, "the log keeps its filter");
        }
        self.network.configure(config);
        self.images.set_registries(registry_config(config));
        self.pods.set_start(start);
        Ok(())
    }
}

/// Resolves the configuration of registries.
pub(super) fn registry_config(config: &Config) -> RegistryConfig {
    RegistryConfig {
        insecure: config.registries.insecure.clone(),
        config_dir: Some(config.registries.config_dir.clone()),
        // Invalid names were refused by the check of the configuration.
        pinned: Pinned::parse(&config.registries.pinned).unwrap_or_default(),
        ..Default::default()
    }
}

/// Resolves the rules for starting pods, with the node's memory and CPUs as default bounds.
pub(super) fn start_config(config: &Config) -> anyhow::Result<StartConfig> {
    let (handlers, default_handler) = config.handlers();
    let host_memory = nix::sys::sysinfo::sysinfo().context("asking how much memory there is")?.ram_total();
    // The node's, and not those that the daemon itself is bound to.
    let host_cpus =
        nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).context("counting the CPUs")?;
    let host_cpus = u8::try_from(host_cpus.unwrap_or(1)).unwrap_or(u8::MAX);
    installation::check_kernels(config)?;
    let handlers = handlers.iter().map(|handler| HandlerConfig {
        name: handler.name.clone(),
        memory_default: handler.memory_mib << 20,
        memory_max: handler
            .memory_max_mib
            .map_or(host_memory, |mib| mib.saturating_mul(1 << 20))
            .min(runtime_vm::MEMORY_BYTES_MAX),
        vcpus_max: handler.vcpus_max.unwrap_or(host_cpus).clamp(1, 64),
        scratch_bytes: handler.scratch_mib << 20,
        scratch_sum_bytes: handler.scratch_sum_mib.map(|mib| mib << 20),
        writable_layer_bytes: handler.writable_layer_mib.map(|mib| mib << 20),
        share_all_volumes: handler.share_all_volumes,
        volume_cache: handler.volume_cache,
        host_sockets: handler.host_sockets.clone(),
        kernel: handler.kernel,
        template: handler.template,
        spare_vms: handler.spare_vms,
        kind: HandlerKind::Vm,
    });
    Ok(StartConfig {
        handlers: handlers.collect(),
        default_handler,
        strict_cgroups: config.cgroup.strict,
        spare_vmms: config.cni.spare_namespaces,
        walls_missing: match config.isolation.walls {
            Walls::Require => missing(runtime_vm::walls()),
            Walls::Report => Vec::new(),
        },
    })
}

/// The walls that are missing, with the reasons.
fn missing(walls: Vec<Wall>) -> Vec<String> {
    walls.into_iter().filter_map(|wall| Some(format!("{} ({})", wall.name, wall.found.err()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_that_is_missing_is_named_with_its_reason() {
        let wall = |name, found| Wall { name, found };
        let walls = vec![wall("seccomp", Ok("errno".into())), wall("landlock", Err("not there".into()))];
        assert_eq!(missing(walls), ["landlock (not there)"]);
        let rules = start_config(&Config::default()).unwrap();
        assert!(rules.walls_missing.is_empty(), "walls are asked for where the configuration says so");
    }

    #[test]
    fn a_vm_may_have_all_cpus_of_the_node_whatever_the_daemon_is_bound_to() {
        let online = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).unwrap().unwrap();
        let bound = std::thread::spawn(|| {
            let mut one = nix::sched::CpuSet::new();
            let own = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
            let first = (0..nix::sched::CpuSet::count()).find(|cpu| own.is_set(*cpu).unwrap()).unwrap();
            one.set(first).unwrap();
            nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &one).unwrap();
            start_config(&Config::default()).unwrap()
        });
        assert_eq!(i64::from(bound.join().unwrap().handlers[0].vcpus_max), online.min(64));
    }
}
