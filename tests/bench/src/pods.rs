//! The rows of pods: a pod and one container of it, through the daemon, by each way that a pod starts. The network's plugin names an
//! address and does nothing else.
//!
//! Marks inside RunPodSandbox are the ends of the phases that the pod's verbose status has, and the last mark is the time that the
//! container's log has for the first line: the moment at which the daemon received it.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use jiff::Timestamp;
use serde_json::Value;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};

use crate::handlers::{BOOTED, CLONED, WAITING, rests, state_in_memory, with_templates, without_plugins};
use crate::rows::{AGENT, RESTORED, Row};
use crate::runtimes::{FIRST_BYTE, PROCESS};

/// A way of a pod to start.
struct Way {
    how: &'static str,
    handler: &'static str,
    /// Phases whose ends are marks. A VM that waits has all of them behind it.
    phases: &'static [(&'static str, &'static str)],
}

const WAYS: [Way; 3] = [
    Way { how: "a pod that boots", handler: BOOTED, phases: &[("guest", AGENT)] },
    Way { how: "a pod from a template", handler: CLONED, phases: &[("boot", RESTORED), ("guest", AGENT)] },
    Way { how: "a pod in a VM that waits", handler: WAITING, phases: &[] },
];

/// Marks of one start, each counted from the call of RunPodSandbox.
struct Marks {
    /// Ends of the way's phases.
    phases: Vec<Duration>,
    /// RunPodSandbox was answered.
    answered: Duration,
    /// The first line of the container has come.
    first_byte: Duration,
}

/// Starts pods in each way.
pub(crate) async fn bench(host: &mut Host, memory: &Path, starts: usize) -> anyhow::Result<Vec<Row>> {
    let state = state_in_memory(host, memory).await?;
    without_plugins(host, memory).await?;
    with_templates(host, &state).await?;
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await?;
    let mut rows = Vec::new();
    for way in &WAYS {
        let mut all = Vec::with_capacity(starts);
        for number in 0..=starts {
            rests(host, way.handler).await?;
            let marks = start(host, &mut client, &image, way).await;
            let marks = marks.with_context(|| format!("{}, number {number}", way.how))?;
            // The first one pays for what is cold.
            if number > 0 {
                all.push(marks);
            }
        }
        rows.extend(rows_of(way, &all));
    }
    Ok(rows)
}

fn rows_of(way: &Way, all: &[Marks]) -> Vec<Row> {
    let row = |mark, of: &dyn Fn(&Marks) -> Duration| Row::new(way.how, mark, all.iter().map(of).collect());
    let phases = way.phases.iter().enumerate();
    let phases = phases.map(|(place, (_, mark))| row(mark, &|marks| marks.phases[place]));
    let answered = row("RunPodSandbox's answer", &|marks| marks.answered);
    phases.chain([answered, row(FIRST_BYTE, &|marks| marks.first_byte)]).collect()
}

async fn start(host: &Host, client: &mut Client, image: &str, way: &Way) -> anyhow::Result<Marks> {
    let config = spec::pod("lineup", host.dir());
    let (begun, clock) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?);
    let pod = client.run_pod_on(&config, way.handler).await.context("running a pod")?;
    let answered = begun.elapsed();
    let container = client.run(&pod, spec::container("main", image, &PROCESS)).await?;
    client.wait(&container).await?;
    let log = Path::new(&config.log_directory).join("main.log");
    let first_byte = first_line(&std::fs::read_to_string(&log)?)?.saturating_sub(clock);
    let (status, info) = client.pod_status_verbose(&pod).await?;
    // The phases are counted from here on.
    let created = Duration::from_nanos(status.created_at.try_into()?).saturating_sub(clock);
    let end = |(name, _): &(&str, _)| {
        let end = end_of(&info["phases"], name).with_context(|| format!("no phase {name}: {info}"))?;
        anyhow::Ok(created + end)
    };
    let phases = way.phases.iter().map(end).collect::<anyhow::Result<_>>()?;
    client.remove_pod(&pod).await?;
    Ok(Marks { phases, answered, first_byte })
}

/// The end of a phase, counted from the beginning of the pod's start.
fn end_of(phases: &Value, name: &str) -> Option<Duration> {
    let phase = phases.as_array()?.iter().find(|phase| phase["name"] == name)?;
    let ms = phase["start_ms"].as_f64()? + phase["duration_ms"].as_f64()?;
    Some(Duration::from_secs_f64(ms / 1e3))
}

/// The time of a log's first line, since the epoch: the first word of the line.
fn first_line(log: &str) -> anyhow::Result<Duration> {
    let time = log.split(' ').next().filter(|time| !time.is_empty()).context("the log is empty")?;
    let time: Timestamp = time.parse().with_context(|| format!("the time of {log:?}"))?;
    Ok(time.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs())
}
