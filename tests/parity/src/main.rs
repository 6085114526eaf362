//! `make parity`: the same CRI calls to a VM handler of Podvisor and to containerd with runc, in one node,
//! and a comparison of their answers to a client.
//!
//! The cases are `cases/`, in the form of `case.rs`; allowed differences are in `accepted.toml`, each with
//! its reason. A further difference fails the run, and so does a vanished accepted one. Nothing here is
//! released.

#![forbid(unsafe_code)]

mod accepted;
mod case;
mod generate;
mod images;
mod log;
mod outcome;
mod request;
mod run;
mod shrink;
mod side;
mod sources;
mod table;
mod tree;

use std::collections::BTreeMap;
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

use crate::accepted::{Accepted, Kind};
use crate::case::Case;
use crate::images::Images;
use crate::outcome::{Outcome, difference};
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
}

impl Both {
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
    let accepted = accepted::list(&all, &version)?;
    let wanted = |area: &str, case: &Case| {
        args.names.is_empty() || args.names.iter().any(|name| area.contains(name) || case.name.contains(name))
    };
    let cases = match &args.cases {
        Some(path) => table::cases_of(path)?.into_iter().map(|case| ("tried", case)).collect(),
        None if args.no_table => Vec::new(),
        None => all,
    };
    let cases: Vec<_> = cases.into_iter().filter(|(area, case)| wanted(area, case)).collect();
    let mut both = Both {
        images: Images::new(host.registry).await?,
        ours: Side::new("podvisor", &host.client(), &dir("ours")?),
        theirs: Side::new("runc", &client, &dir("theirs")?),
    };
    let mut report = Report::default();
    for (area, case) in &cases {
        let begun = Instant::now();
        let (ours, theirs) = both.run(case).await.with_context(|| format!("{area}: {}", case.name))?;
        report.add(area, case, &ours, &theirs, &accepted);
        if args.verbose {
            println!("    {:.1} s", begun.elapsed().as_secs_f64());
            ours.seen.iter().chain(&ours.errors).for_each(|line| println!("    podvisor: {line}"));
            theirs.seen.iter().chain(&theirs.errors).for_each(|line| println!("    runc: {line}"));
        }
    }
    for seed in args.seed..args.seed + args.generated {
        let case = generate::case(seed);
        let (ours, theirs) = both.run(&case).await.with_context(|| case.name.clone())?;
        report.add("generated", &case, &ours, &theirs, &[]);
        if !difference(&theirs, &ours).is_empty() {
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

/// The counts of a run.
#[derive(Debug, Default)]
struct Report {
    agree: usize,
    accepted: BTreeMap<Kind, usize>,
    differ: Vec<String>,
    gone: Vec<String>,
}

impl Report {
    fn add(&mut self, area: &str, case: &Case, ours: &Outcome, theirs: &Outcome, accepted: &[Accepted]) {
        let lines = difference(theirs, ours);
        let known = accepted.iter().find(|known| known.case == case.name);
        let name = format!("{area}: {}", case.name);
        let state = match (lines.is_empty(), known) {
            (true, None) => {
                self.agree += 1;
                "agree"
            }
            (true, Some(_)) => {
                self.gone.push(name.clone());
                "agree, and accepted.toml says that they differ"
            }
            (false, Some(known)) => {
                *self.accepted.entry(known.kind).or_default() += 1;
                "differ, as accepted"
            }
            (false, None) => {
                self.differ.push(name.clone());
                "differ"
            }
        };
        println!("{name}: {state}");
        if known.is_none() {
            lines.iter().for_each(|line| println!("    {line}"));
            if !lines.is_empty() {
                theirs.errors.iter().for_each(|error| println!("    runc: {error}"));
                ours.errors.iter().for_each(|error| println!("    podvisor: {error}"));
            }
        }
    }

    /// Prints the counts, and returns whether all is as it should be.
    fn close(&self) -> bool {
        let accepted: usize = self.accepted.values().sum();
        println!(
            "parity: {} cases, {} agree, {accepted} differ as accepted {:?}, {} differ, {} agree again",
            self.agree + accepted + self.differ.len() + self.gone.len(),
            self.agree,
            self.accepted,
            self.differ.len(),
            self.gone.len()
        );
        self.differ.iter().for_each(|name| println!("parity: differs: {name}"));
        self.gone
            .iter()
            .for_each(|name| println!("parity: agrees again, remove it from accepted.toml: {name}"));
        // The counting form of all tests.
        let failed = self.differ.len() + self.gone.len();
        let word = if failed == 0 { "ok" } else { "FAILED" };
        println!("test result: {word}. {} passed; {failed} failed; 0 ignored", self.agree + accepted);
        failed == 0
    }
}
