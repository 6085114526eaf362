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
use crate::show::{Form, FormArg, json, out};

/// Arguments of `podvisor check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only boot a guest: whether KVM works here.
    #[arg(long)]
    kvm: bool,
    #[command(flatten)]
    form: FormArg,
}

/// Examines everything and reports whether pods can run: exit status 0 or 1.
pub(crate) fn check(loaded: &Loaded, args: &Args) -> anyhow::Result<ExitCode> {
    let config = &loaded.config;
    let mut failed = false;
    let mut findings = Vec::new();
    // A line each for a person, who sees the guest's boot take its time. One list for a program.
    let mut report = |finding: Finding| {
        failed |= matches!(&finding.outcome, Err(problem) if !problem.minor);
        match args.form.form {
            // The exit status counts for a script that reads no further (`grep -q`).
            Form::Text => out::say(finding.line(console::colors_enabled())),
            Form::Json => findings.push(finding),
        }
    };
    if !args.kvm {
        host::examine(config).into_iter().for_each(&mut report);
        configuration::examine(loaded).into_iter().for_each(&mut report);
        cdi::examine(&Registry::default()).into_iter().for_each(&mut report);
        outdated::examine(config).into_iter().for_each(&mut report);
    }
    report(Finding { what: "a Linux guest on KVM", outcome: guest::boot(config) });
    if args.form.form == Form::Json {
        out::print(&json::pretty(&findings)?)?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
