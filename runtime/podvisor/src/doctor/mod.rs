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

/// The most scans from the beginning, because a command ended under one with its daemon.
const LOOKS_MAX: usize = 5;

/// How long a command may take to end after its daemon.
const COMMAND_ENDS_WITHIN: Duration = Duration::from_secs(10);

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
    let (_, mut found) = look(&cni, config, false).await?;
    // Held until all is repaired, so no daemon starts meanwhile.
    let mut places = Vec::new();
    if !found.is_empty() {
        tokio::time::sleep(LOOKS_APART).await;
        let (held, found_again) = look(&cni, config, repair).await?;
        (places, found) = (held, doctor::in_both(&found, found_again));
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

/// Scans, until no daemon ends meanwhile whose records count. Returns the places as they were. With `hold`,
/// stopped daemons are kept from starting until the places are dropped.
async fn look(cni: &Cni, config: &Config, hold: bool) -> anyhow::Result<(Vec<Place>, Vec<Difference>)> {
    let leases = place::leases(config);
    for _ in 0..LOOKS_MAX {
        let places = daemons::find(config, hold)?;
        if let Some(found) = look_once(cni, &places, &leases).await? {
            return Ok((places, found));
        }
    }
    bail!("commands with a daemon of their own end again and again: wait for them")
}

/// Scans once: first the node, then the records. `None` if a command ended meanwhile, whose daemon ran.
async fn look_once(cni: &Cni, places: &[Place], leases: &Path) -> anyhow::Result<Option<Vec<Difference>>> {
    let looked_at: Vec<DaemonPlace> = places.iter().map(|place| place.daemon.clone()).collect();
    let (node, leases) = (cni.clone(), leases.to_owned());
    let looking = tokio::task::spawn_blocking(move || OnNode::look(&node, &looked_at, &leases));
    let node = within("the node's disks", looking).await??;
    let mut daemons = Vec::new();
    for place in places {
        let Some(record) = record(place).await? else { return Ok(None) };
        daemons.push(Daemon { place: place.daemon.clone(), record });
    }
    Ok(Some(doctor::differences(&daemons, &node)))
}

/// A daemon's records; `None` if it was a command's, and has ended since it was found.
async fn record(place: &Place) -> anyhow::Result<Option<OnRecord>> {
    let daemon = &place.daemon;
    match daemon.life {
        Life::Over => Ok(Some(OnRecord::default())),
        Life::Serving => {
            let asked = tokio::select! {
                asked = ask::on_record(&daemon.socket) => asked,
                () = place.ended() => return Ok(None),
            };
            // The command ends after its daemon.
            let may_end = asked.is_err() && place.is_private;
            if may_end && tokio::time::timeout(COMMAND_ENDS_WITHIN, place.ended()).await.is_ok() {
                return Ok(None);
            }
            asked.map(Some).with_context(|| format!("asking the daemon on {}", daemon.socket.display()))
        }
        Life::Stopped => {
            let dirs = daemon.dirs.clone();
            let reading = tokio::task::spawn_blocking(move || OnRecord::of_stopped(&dirs));
            Ok(Some(within("the pods' records", reading).await??))
        }
    }
}

async fn within<T>(what: &str, work: tokio::task::JoinHandle<T>) -> anyhow::Result<T> {
    match tokio::time::timeout(LOOK_WITHIN, work).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => bail!("{what} did not answer within {} s", LOOK_WITHIN.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_lock::StateLock;

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_ends_with_its_command_has_no_records_to_wait_for() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.paths.state = dir.path().join("state");
        config.paths.run = dir.path().join("run");
        let private = config.paths.state.join("private/0");
        std::fs::create_dir_all(&private).unwrap();
        let command = StateLock::take(&private).unwrap();
        let places = daemons::find(&config, false).unwrap();
        let ending = &places[1];
        assert_eq!(ending.daemon.life, Life::Serving);
        let error = record(ending).await.unwrap_err().to_string();
        assert!(error.contains("private/0/podvisor.sock"), "it hangs: {error}");
        drop(command);
        assert!(record(ending).await.unwrap().is_none(), "it has ended");
        let looked_again = daemons::find(&config, false).unwrap();
        assert!(record(&looked_again[1]).await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_nodes_daemon_is_waited_for_even_if_it_has_stopped_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.paths.state = dir.path().join("state");
        config.paths.socket = Some(dir.path().join("none.sock"));
        let daemon = StateLock::take(&config.paths.state).unwrap();
        let places = daemons::find(&config, false).unwrap();
        drop(daemon);
        record(&places[0]).await.unwrap_err();
    }
}
