//! `make parity`: the same CRI calls to a VM handler of Podvisor and to containerd with runc, in one node,
//! and a comparison of their answers to a client.
//!
//! The cases are `cases/`, in the form of `case.rs`, and scripts of calls in the form of `calls.rs`; allowed
//! differences are in `accepted.toml`, each with its reason. A further difference fails the run, and so does
//! a vanished accepted one. Nothing here is released.

#![forbid(unsafe_code)]

mod accepted;
mod calls;
mod case;
mod generate;
mod images;
mod log;
mod outcome;
mod report;
mod request;
mod run;
mod shrink;
mod side;
mod sources;
mod table;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use nix::mount::{MsFlags, mount};
use proto_cri::v1;
use tests_e2e::Host;
use tests_e2e::built::Built;
use tests_e2e::client::Client;
use tests_e2e::containerd::Containerd;

use crate::calls::Script;
use crate::case::Case;
use crate::images::Images;
use crate::outcome::{Outcome, difference};
use crate::report::Report;
use crate::side::Side;

/// Most parts removed from one case.
const SHRINKS_MAX: usize = 40;

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    built: Built,
    /// The containerd to compare with. Its shim and its runc are beside it, or in PATH.
    #[arg(long, default_value = "containerd")]
    containerd: PathBuf,
    /// Print both outcomes of every case.
    #[arg(long)]
    verbose: bool,
    /// A file of cases to run in place of the table's.
    #[arg(long)]
    cases: Option<PathBuf>,
    /// Leave out the table.
    #[arg(long)]
    no_table: bool,
    /// Generated containers to run after the table.
    #[arg(long, default_value_t = 0)]
    generated: u64,
    /// The first one's seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Cases with one of these in their area or name; all without any.
    names: Vec<String>,
}

impl Args {
    fn wants(&self, area: &str, name: &str) -> bool {
        let is_named = |wanted: &String| area.contains(wanted) || name.contains(wanted);
        self.names.is_empty() || self.names.iter().any(is_named)
    }

    /// Prints both outcomes, if asked to.
    fn print(&self, begun: Instant, (ours, theirs): &(Outcome, Outcome)) {
        if self.verbose {
            println!("    {:.1} s", begun.elapsed().as_secs_f64());
            ours.seen.iter().chain(&ours.errors).for_each(|line| println!("    podvisor: {line}"));
            theirs.seen.iter().chain(&theirs.errors).for_each(|line| println!("    runc: {line}"));
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match compare(&Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("parity: {error:?}");
            ExitCode::FAILURE
        }
    }
}

/// Both runtimes, and the images for them.
struct Both {
    images: Images,
    ours: Side,
    theirs: Side,
}

impl Both {
    async fn run(&mut self, case: &Case) -> Result<(Outcome, Outcome)> {
        let reference = self.images.reference(&case.image).await?;
        let theirs = run::run(&mut self.theirs, case, &reference).await?;
        let ours = run::run(&mut self.ours, case, &reference).await?;
        Ok((ours, theirs))
    }

    async fn play(&mut self, script: &Script, newest: bool) -> Result<(Outcome, Outcome)> {
        let reference = self.images.reference(&script.image).await?;
        let theirs = calls::run(&mut self.theirs, script, &reference, newest).await?;
        let ours = calls::run(&mut self.ours, script, &reference, newest).await?;
        Ok((ours, theirs))
    }

    /// The smallest case with a difference, by removing one part after the other.
    async fn shrink(&mut self, mut case: Case) -> Result<Case> {
        for _ in 0..SHRINKS_MAX {
            let Some(smaller) = self.first_that_differs(&case).await? else { break };
            case = smaller;
        }
        Ok(case)
    }

    async fn first_that_differs(&mut self, case: &Case) -> Result<Option<Case>> {
        for smaller in shrink::smaller(case) {
            let (ours, theirs) = self.run(&smaller).await?;
            if !difference(&theirs, &ours).is_empty() {
                return Ok(Some(smaller));
            }
        }
        Ok(None)
    }
}

async fn compare(args: &Args) -> Result<bool> {
    let all = table::cases()?;
    let host = Host::with(&args.built).await?;
    let peer = host.dir().join("peer");
    memory_disk(&peer)?;
    let containerd = Containerd::start_program(&args.containerd, &peer, &host.network, host.registry).await?;
    let dir = |name: &str| -> Result<PathBuf> {
        let dir = host.dir().join(name);
        std::fs::create_dir(&dir)?;
        Ok(dir)
    };
    let mut client = Client::connect(&containerd.socket()).await?;
    let version = client.runtime.version(v1::VersionRequest::default()).await?.into_inner().runtime_version;
    println!("parity: containerd {version}");
    let scripts = calls::scripts()?;
    let names = all.iter().map(|(_, case)| case.name.as_str());
    let accepted = accepted::list(names.chain(scripts.iter().map(|script| script.name.as_str())), &version)?;
    let cases = match &args.cases {
        Some(path) => table::cases_of(path)?.into_iter().map(|case| ("tried", case)).collect(),
        None if args.no_table => Vec::new(),
        None => all,
    };
    let mut both = Both {
        images: Images::new(host.registry).await?,
        ours: Side::new("podvisor", &host.client(), &dir("ours")?),
        theirs: Side::new("runc", &client, &dir("theirs")?),
    };
    let mut report = Report::default();
    for (area, case) in cases.iter().filter(|(area, case)| args.wants(area, &case.name)) {
        let begun = Instant::now();
        let outcomes = both.run(case).await.with_context(|| format!("{area}: {}", case.name))?;
        report.add(area, &case.name, &outcomes, &accepted);
        args.print(begun, &outcomes);
    }
    let is_newest = !version.trim_start_matches('v').starts_with("1.");
    let is_table = args.cases.is_none() && !args.no_table;
    for script in scripts.iter().filter(|script| is_table && args.wants("calls", &script.name)) {
        let begun = Instant::now();
        let outcomes =
            both.play(script, is_newest).await.with_context(|| format!("calls: {}", script.name))?;
        report.add("calls", &script.name, &outcomes, &accepted);
        args.print(begun, &outcomes);
    }
    for seed in args.seed..args.seed + args.generated {
        let case = generate::case(seed);
        let outcomes = both.run(&case).await.with_context(|| case.name.clone())?;
        report.add("generated", &case.name, &outcomes, &[]);
        if outcomes.0.seen != outcomes.1.seen {
            let least = both.shrink(case).await?;
            println!("    the least that differs:\n{}", toml::to_string(&least)?);
        }
    }
    both.ours.end().await;
    both.theirs.end().await;
    host.stop().await?;
    Ok(report.close())
}

/// Mounts a tmpfs, so containerd can have overlays there: the node's own tree is one.
fn memory_disk(at: &Path) -> Result<()> {
    std::fs::create_dir(at)?;
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some("size=50%"))
        .context("mounting a tmpfs for containerd")
}
