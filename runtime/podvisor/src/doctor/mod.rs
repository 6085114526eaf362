//! `podvisor doctor`: compares the records of this node's daemons with the node itself. For each difference
//! it prints the meaning and the advice. With `--repair` it removes leftovers without an owner. The module
//! `runtime_pod::doctor` decides about ownership.
//!
//! Exit status: 0 if nothing was found, or everything was repaired; 1 for differences; 2 if the check itself
//! failed.

mod ask;
mod daemons;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use runtime_net::Cni;
use runtime_pod::doctor::{self, Daemon, DaemonPlace, Difference, Life, OnNode, OnRecord};
use serde::Serialize;

use self::daemons::Place;
use crate::config::Config;
use crate::run::place;
use crate::show::{Form, FormArg, json, out};

/// Timeout for one scan of the node. A hanging disk must not hang this command.
const LOOK_WITHIN: Duration = Duration::from_secs(60);

/// The pause between two scans. A difference in only one of them was work in progress.
const LOOKS_APART: Duration = Duration::from_secs(1);

/// Timeout for one removal: CNI plugins have a minute each.
const REPAIR_WITHIN: Duration = Duration::from_secs(150);

/// Exit status if the check itself failed.
const EXIT_BLIND: u8 = 2;

/// Arguments of `podvisor doctor`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Remove leftovers without an owner.
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    form: FormArg,
}

/// Scans, prints, and repairs if asked to.
pub(crate) async fn doctor(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    match examine(config, args).await {
        Ok(0) => Ok(ExitCode::SUCCESS),
        Ok(_) => Ok(ExitCode::FAILURE),
        Err(error) => {
            out::complain(format_args!("the doctor cannot look: {error:#}"));
            Ok(ExitCode::from(EXIT_BLIND))
        }
    }
}

/// A difference for a program, and what became of it.
#[derive(Debug, Serialize)]
struct Reported<'a> {
    what: &'a str,
    means: &'a str,
    advice: &'a str,
    /// Whether `--repair` has removed it. `None` if it was not to be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    repaired: Option<bool>,
    /// The reason why its removal has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

/// Returns the number of remaining differences.
async fn examine(config: &Config, Args { repair, form }: Args) -> anyhow::Result<usize> {
    if !nix::unistd::geteuid().is_root() {
        bail!("only root sees what belongs to pods");
    }
    let cni = Cni::new(config.cni.pod_networks());
    let mut found = look(&cni, &daemons::find(config, false)?, &place::leases(config)).await?;
    // Held until all is repaired, so no daemon starts meanwhile.
    let mut places = Vec::new();
    if !found.is_empty() {
        tokio::time::sleep(LOOKS_APART).await;
        places = daemons::find(config, repair)?;
        found = doctor::in_both(&found, look(&cni, &places, &place::leases(config)).await?);
    }
    let mut reported = Vec::new();
    for difference in &found {
        let mut one = Reported::of(difference);
        if form.form == Form::Text {
            out::say(format_args!("{}\n    means: {}\n    do:    {}", one.what, one.means, one.advice));
        }
        if repair && difference.is_leftover() {
            let outcome = take_away(difference, &cni).await;
            match (&outcome, form.form) {
                (Ok(()), Form::Text) => out::say("    done:  taken away"),
                (Err(why), Form::Text) => out::say(format_args!("    stays: {why}")),
                (_, Form::Json) => {}
            }
            one.repaired = Some(outcome.is_ok());
            one.failure = outcome.err();
        }
        reported.push(one);
    }
    drop(places);
    let left = reported.iter().filter(|one| one.repaired != Some(true)).count();
    match (form.form, reported.len()) {
        (Form::Json, _) => out::print(&json::pretty(&reported)?)?,
        (Form::Text, 0) => out::say("nothing found: the records and the node agree"),
        (Form::Text, all) => out::say(format_args!("differences: {all}; left: {left}")),
    }
    Ok(left)
}

impl Reported<'_> {
    fn of(difference: &Difference) -> Reported<'_> {
        let Difference { what, means, advice, .. } = difference;
        Reported { what, means, advice, repaired: None, failure: None }
    }
}

async fn take_away(difference: &Difference, cni: &Cni) -> Result<(), String> {
    match tokio::time::timeout(REPAIR_WITHIN, doctor::repair(difference, cni)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {} s", REPAIR_WITHIN.as_secs())),
    }
}

/// Scans once: first the node, then the records.
async fn look(cni: &Cni, places: &[Place], leases: &Path) -> anyhow::Result<Vec<Difference>> {
    let places: Vec<DaemonPlace> = places.iter().map(|place| place.daemon.clone()).collect();
    let (node, looked_at) = (cni.clone(), places.clone());
    let leases = leases.to_owned();
    let looking = tokio::task::spawn_blocking(move || OnNode::look(&node, &looked_at, &leases));
    let node = within("the node's disks", looking).await??;
    let mut daemons = Vec::new();
    for place in places {
        let record = record(&place).await?;
        daemons.push(Daemon { place, record });
    }
    Ok(doctor::differences(&daemons, &node))
}

async fn record(place: &DaemonPlace) -> anyhow::Result<OnRecord> {
    match place.life {
        Life::Over => Ok(OnRecord::default()),
        Life::Serving => ask::on_record(&place.socket)
            .await
            .with_context(|| format!("asking the daemon on {}", place.socket.display())),
        Life::Stopped => {
            let dirs = place.dirs.clone();
            let reading = tokio::task::spawn_blocking(move || OnRecord::of_stopped(&dirs));
            Ok(within("the pods' records", reading).await??)
        }
    }
}

async fn within<T>(what: &str, work: tokio::task::JoinHandle<T>) -> anyhow::Result<T> {
    match tokio::time::timeout(LOOK_WITHIN, work).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => bail!("{what} did not answer within {} s", LOOK_WITHIN.as_secs()),
    }
}
