//! `podvisor runtimeclass`: prints RuntimeClasses for pods up to a size each, with the memory of a VM beside
//! its containers as their overhead. It measures VMs of this build on this node. Without KVM it uses the
//! daemon's own values. Nothing is sent to a cluster.
//!
//! ```text
//!  args.rs ─> measure.rs: VMs of several sizes ─> figures.rs: overheads ─> manifest.rs: YAML, JSON
//! ```

mod args;
mod figures;
mod manifest;
mod measure;
mod names;
mod quantity;
mod toleration;
mod vmm_memory;

use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};

pub(crate) use self::args::Args;
use self::args::Output;
use self::figures::Figures;
use self::manifest::Manifests;
use crate::client;
use crate::config::{Config, Handler};
use crate::kvm::KVM;
use crate::show::out;

/// Measures, unless it is not wanted or not possible, and prints.
pub(crate) fn runtimeclass(
    config: &Config,
    config_file: Option<&Path>,
    args: &Args,
) -> anyhow::Result<ExitCode> {
    let text = text(config, config_file, args)?;
    out::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the text of the classes.
pub(crate) fn text(config: &Config, config_file: Option<&Path>, args: &Args) -> anyhow::Result<String> {
    let handler = handler(config, args.handler.as_deref())?;
    // A refused size is reported before the measurement, not after it.
    Manifests::of(args, &handler, &Figures::assumed())?;
    let figures = figures(config, config_file, args, &handler)?;
    let manifests = Manifests::of(args, &handler, &figures)?;
    for warning in figures.warnings(&manifests.sizes()) {
        out::complain(warning);
    }
    match args.output {
        Output::Yaml => manifests.yaml(&figures),
        Output::Json => manifests.json(),
    }
}

/// The values for the arguments.
fn figures(
    config: &Config,
    config_file: Option<&Path>,
    args: &Args,
    handler: &Handler,
) -> anyhow::Result<Figures> {
    if args.assumed {
        return Ok(Figures::assumed());
    }
    if let Err(error) = OpenOptions::new().read(true).write(true).open(KVM) {
        if args.measure {
            return Err(error).context(KVM);
        }
        out::complain(format_args!(
            "{KVM}: {error}; nothing is measured, and the daemon's own values are printed"
        ));
        return Ok(Figures::assumed());
    }
    let measuring = client::block_on(measure::measure(config, config_file, handler));
    let points = measuring.context("measuring (with --assumed, nothing is measured)")?;
    Ok(Figures::measured(points))
}

/// The handler of the classes: the given one, else the default one. A class names its handler, so it does not
/// matter where pods without one go.
fn handler(config: &Config, named: Option<&str>) -> anyhow::Result<Handler> {
    let (handlers, default) = (config.handlers().0, config.first_handler());
    let names = || handlers.iter().map(|handler| handler.name.as_str()).collect::<Vec<_>>().join(", ");
    let Some(name) = named.or(default.as_deref()) else {
        bail!("no handler is the default one; name one with --handler: {}", names());
    };
    let found = handlers.iter().find(|handler| handler.name == name).cloned();
    let found =
        found.with_context(|| format!("no handler {name:?} in the configuration; there are: {}", names()))?;
    // A cluster accepts no class with another name, but the configuration does.
    names::label(&found.name).map_err(|why| {
        anyhow::anyhow!("the handler {:?} cannot be named by a RuntimeClass: {why}", found.name)
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UnnamedPods;

    fn config(names: &[&str]) -> Config {
        let handler = |name: &&str| Handler { name: (*name).into(), ..Handler::default() };
        Config { handler: names.iter().map(handler).collect(), ..Config::default() }
    }

    #[test]
    fn the_handler_is_one_of_the_configuration() {
        let name = |config: &Config, named| {
            handler(config, named).map(|handler| handler.name).map_err(|e| e.to_string())
        };
        assert_eq!(name(&Config::default(), None), Ok("podvisor".into()));
        // A class names its handler, wherever other pods go.
        let mut behind = Config::default();
        behind.upstream.socket = Some("/run/containerd/containerd.sock".into());
        behind.upstream.unnamed_pods = UnnamedPods::All;
        assert_eq!(name(&behind, None), Ok("podvisor".into()));
        assert_eq!(name(&config(&["a", "b"]), Some("b")), Ok("b".into()));
        let none = name(&config(&["a", "b"]), None).unwrap_err();
        assert!(none.contains("--handler: a, b"), "{none}");
        let unknown = name(&config(&["a"]), Some("runc")).unwrap_err();
        assert!(unknown.contains("no handler \"runc\"") && unknown.ends_with("there are: a"), "{unknown}");
        let odd = name(&config(&["A_b"]), None).unwrap_err();
        assert!(odd.contains("A_b") && odd.contains("lower case"), "{odd}");
    }
}
