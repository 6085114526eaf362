//! The phases of RunPodSandbox, through the daemon, as instructions of the node: with CNI's plugins, and with
//! an empty plugin for a booting pod, a pod from a template and one with a pooled VM.

use std::path::Path;

use anyhow::Context;
use tests_e2e::{Host, spec};

use crate::handlers::{BOOTED, CLONED, WAITING, rests, state_in_memory, with_templates, without_plugins};

/// Millions of instructions in a millisecond of the node's clock, at two nanoseconds an instruction.
const INSTRUCTIONS_PER_MS_MILLIONS: f64 = 0.5;

/// If a start takes so many medians, its phases are printed too, to show its waiting.
const FAR_FROM_MEDIAN: f64 = 1.5;

/// A pod's phases, as its verbose status has them.
type Phases = Vec<serde_json::Value>;

/// Prints the phases of a booting pod with CNI's plugins, then those of a booting pod and of one from a
/// template without them. The daemon's state is in `memory`: a wait for the node's disk would count as
/// instructions.
pub(crate) async fn bench(host: &mut Host, memory: &Path, starts: u32) -> anyhow::Result<()> {
    let state = state_in_memory(host, memory).await?;
    print("booted, CNI beside", starts_of(host, BOOTED, starts).await?.middle());
    without_plugins(host, memory).await?;
    with_templates(host, &state, 1).await?;
    let booted = starts_of(host, BOOTED, starts).await?;
    print("booted", booted.middle());
    let booted = total(booted.middle());
    for (how, handler) in [("from a template", CLONED), ("in a VM that waits", WAITING)] {
        let starts = starts_of(host, handler, starts).await?;
        print(how, starts.middle());
        let (least, median, most) = starts.totals();
        if most > median * FAR_FROM_MEDIAN {
            print(&format!("{how}, the longest"), starts.longest());
        }
        println!(
            "bench: RunPodSandbox without CNI: {median:.1} M instructions {how} ({least:.1} to {most:.1}), {:.2} of a boot's {booted:.1} M",
            median / booted,
        );
    }
    Ok(())
}

/// The phases of several starts, by their wholes.
struct Starts(Vec<Phases>);

impl Starts {
    fn longest(&self) -> &Phases {
        &self.0[self.0.len() - 1]
    }

    fn middle(&self) -> &Phases {
        &self.0[self.0.len() / 2]
    }

    /// The least, the median and the most of the wholes, in millions of instructions.
    fn totals(&self) -> (f64, f64, f64) {
        let at = |place: usize| total(&self.0[place]);
        (at(0), total(self.middle()), at(self.0.len() - 1))
    }
}

/// Runs some pods, each on a node at rest, and returns the phases of each except the first one: it has cold
/// caches, for example CNI's bridge.
async fn starts_of(host: &Host, handler: &str, starts: u32) -> anyhow::Result<Starts> {
    let mut client = host.client();
    let mut all = Vec::new();
    for number in 0..=starts.max(1) {
        rests(host, handler, 1).await?;
        let config = spec::pod(&format!("pod-{number}"), host.dir());
        let pod = client.run_pod_on(&config, handler).await.context("running a pod")?;
        let (_, info) = client.pod_status_verbose(&pod).await?;
        let phases = info["phases"].as_array().context("the verbose status has no phases")?.clone();
        client.remove_pod(&pod).await?;
        if number > 0 {
            all.push(phases);
        }
    }
    all.sort_by(|one, other| total(one).total_cmp(&total(other)));
    Ok(Starts(all))
}

fn print(how: &str, phases: &Phases) {
    for phase in phases {
        println!(
            "bench: RunPodSandbox, {how}: phase {:<12} from {:7.1} M for {:7.1} M instructions",
            phase["name"].as_str().unwrap_or("?"),
            millions(phase, "start_ms"),
            millions(phase, "duration_ms"),
        );
    }
}

fn total(phases: &Phases) -> f64 {
    let total = phases.iter().find(|phase| phase["name"] == "total");
    total.map_or(f64::NAN, |total| millions(total, "duration_ms"))
}

fn millions(phase: &serde_json::Value, key: &str) -> f64 {
    phase[key].as_f64().unwrap_or(f64::NAN) * INSTRUCTIONS_PER_MS_MILLIONS
}
