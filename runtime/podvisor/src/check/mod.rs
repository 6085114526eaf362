//! `podvisor check`: prints one line for each requirement of pods on this host, with a remedy if it is not
//! met. The last line is decisive: it boots a Linux guest, because `/dev/kvm` may exist and still not run
//! one. Nothing on the host is changed.

mod cdi;
mod configuration;
mod finding;
mod guest;
mod host;
mod outdated;

use std::process::ExitCode;

use finding::Finding;
use runtime_cdi::Registry;

use crate::config::Loaded;

/// Arguments of `podvisor check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only boot a guest: whether KVM works here.
    #[arg(long)]
    kvm: bool,
}

/// Examines everything and reports whether pods can run: exit status 0 or 1.
pub(crate) fn check(loaded: &Loaded, args: &Args) -> anyhow::Result<ExitCode> {
    let config = &loaded.config;
    let mut failed = false;
    let mut report = |finding: Finding| {
        failed |= matches!(&finding.outcome, Err(problem) if !problem.minor);
        println!("{finding}");
    };
    if !args.kvm {
        host::examine(config).into_iter().for_each(&mut report);
        configuration::examine(loaded).into_iter().for_each(&mut report);
        cdi::examine(&Registry::default()).into_iter().for_each(&mut report);
        outdated::examine(config).into_iter().for_each(&mut report);
    }
    report(Finding { what: "a Linux guest on KVM", outcome: guest::boot(config) });
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
