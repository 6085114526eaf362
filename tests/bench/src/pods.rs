//! The rows of pods: a pod and one container of it, through the daemon, by each kind of start. The network's
//! plugin only names an address. Starts are alone and at the same time, on a node without other pods and
//! beside some.
//!
//! Marks inside RunPodSandbox are the ends of the phases in the pod's verbose status. The last mark is the
//! time of the first line in the container's log: the moment of its receipt by the daemon.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use futures::future::try_join_all;
use jiff::Timestamp;
use serde_json::Value;
use tests_e2e::{Host, spec};

use crate::handlers::{BOOTED, CLONED, WAITING, rests, state_in_memory, with_templates, without_plugins};
use crate::present::{AT_ONCE, make};
use crate::rows::{AGENT, RESTORED, Row};
use crate::runtimes::{FIRST_BYTE, PROCESS};

/// A way of a pod to start.
struct Way {
    how: &'static str,
    handler: &'static str,
    /// Phases with their ends as marks. A pooled VM has already passed all of them.
    phases: &'static [(&'static str, &'static str)],
}

const WAYS: [Way; 3] = [
    Way { how: "a pod that boots", handler: BOOTED, phases: &[("guest", AGENT)] },
    Way { how: "a pod from a template", handler: CLONED, phases: &[("boot", RESTORED), ("guest", AGENT)] },
    Way { how: "a pod in a VM that waits", handler: WAITING, phases: &[] },
];

/// Most pooled VMs of a handler (docs/configuration.md).
const SPARE_VMS_MAX: usize = 64;

/// Conditions of further measurements: so many starts at the same time, and so many running pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    pub(crate) at_once: usize,
    pub(crate) present: usize,
}

/// Marks of one start, each counted from the call of RunPodSandbox.
struct Marks {
    /// Ends of the way's phases.
    phases: Vec<Duration>,
    /// RunPodSandbox was answered.
    answered: Duration,
    /// The first line of the container has come.
    first_byte: Duration,
}

/// Starts pods by each kind of start: as many as requested, or some more if they start at the same time.
pub(crate) async fn bench(
    host: &mut Host,
    memory: &Path,
    starts: usize,
    crowd: Crowd,
) -> anyhow::Result<Vec<Row>> {
    let state = state_in_memory(host, memory).await?;
    without_plugins(host, memory).await?;
    with_templates(host, &state, crowd.at_once.clamp(1, SPARE_VMS_MAX)).await?;
    let image = host.client().pull(&host.busybox()).await?;
    let mut rows = Vec::new();
    // One round if both are the same.
    for present in BTreeSet::from([0, crowd.present]) {
        make(host, CLONED, present, AT_ONCE).await?;
        for at_once in BTreeSet::from([1, crowd.at_once.max(1)]) {
            for way in &WAYS {
                let all = starts_of(host, &image, way, starts, at_once).await;
                let all = all.with_context(|| format!("{}, {at_once} beside {present}", way.how))?;
                rows.extend(rows_of(way, at_once, present, &all));
            }
        }
    }
    Ok(rows)
}

/// Starts so many pods at once, each time on a node at rest, until there are as many marks as asked for.
async fn starts_of(
    host: &Host,
    image: &str,
    way: &Way,
    starts: usize,
    at_once: usize,
) -> anyhow::Result<Vec<Marks>> {
    let mut all = Vec::with_capacity(starts + at_once);
    // The first time has cold caches, and shows the daemon the size of the pool.
    for time in 0..=starts.div_ceil(at_once) {
        rests(host, way.handler, if time == 0 { 1 } else { at_once.min(SPARE_VMS_MAX) }).await?;
        let started = try_join_all((0..at_once).map(|_| start(host, image, way))).await?;
        let (pods, marks): (Vec<String>, Vec<Marks>) = started.into_iter().unzip();
        for pod in pods {
            host.client().remove_pod(&pod).await?;
        }
        if time > 0 {
            all.extend(marks);
        }
    }
    Ok(all)
}

fn rows_of(way: &Way, at_once: usize, present: usize, all: &[Marks]) -> Vec<Row> {
    let with = match (at_once, present) {
        (1, 0) => String::new(),
        (1, _) => format!(", beside {present}"),
        (_, 0) => format!(", {at_once} at once"),
        _ => format!(", {at_once} at once beside {present}"),
    };
    let how = format!("{}{with}", way.how);
    let row = |mark, of: &dyn Fn(&Marks) -> Duration| Row::new(&*how, mark, all.iter().map(of).collect());
    let phases = way.phases.iter().enumerate();
    let phases = phases.map(|(place, (_, mark))| row(mark, &|marks| marks.phases[place]));
    let answered = row("RunPodSandbox's answer", &|marks| marks.answered);
    phases.chain([answered, row(FIRST_BYTE, &|marks| marks.first_byte)]).collect()
}

/// Starts a pod and a container of it, and returns the pod, still running.
async fn start(host: &Host, image: &str, way: &Way) -> anyhow::Result<(String, Marks)> {
    let (mut client, config) = (host.client(), spec::pod("lineup", host.dir()));
    let (begun, clock) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?);
    let pod = client.run_pod_on(&config, way.handler).await.context("running a pod")?;
    let answered = begun.elapsed();
    let container = client.run(&pod, spec::confined(spec::container("main", image, &PROCESS))).await?;
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
    Ok((pod, Marks { phases, answered, first_byte }))
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
