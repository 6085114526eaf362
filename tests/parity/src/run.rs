//! Runs a case on one runtime, and returns the client's view.

use std::path::PathBuf;

use anyhow::Result;
use proto_cri::v1;
use tonic::Status;

use crate::case::{Case, Pod};
use crate::log;
use crate::outcome::Outcome;
use crate::request;
use crate::side::{RunningPod, Side};
use crate::sources::Sources;

/// Runs the case with its image, already in the registry.
///
/// # Errors
/// If the case cannot be run at all: an entry of a tree is invalid, or the disk is full.
pub(crate) async fn run(side: &mut Side, case: &Case, reference: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let image = match side.pull(reference).await {
        Ok(image) => image,
        Err(error) => {
            outcome.refused("pull", error.message());
            return Ok(outcome);
        }
    };
    let own_pod = case.pod != Pod::default();
    let started = if own_pod { side.run_pod(&case.pod).await } else { side.shared_pod().await };
    let pod = match started {
        Ok(pod) => pod,
        Err(error) => {
            outcome.refused("pod", error.message());
            return Ok(outcome);
        }
    };
    let lived = live(side, case, &pod, &image, &mut outcome).await;
    if own_pod {
        side.remove_pod(&pod.id).await;
    }
    lived?;
    Ok(outcome)
}

/// The container's life.
async fn live(
    side: &mut Side,
    case: &Case,
    pod: &RunningPod,
    image: &str,
    outcome: &mut Outcome,
) -> Result<()> {
    let dir = side.run_dir()?;
    let sources = Sources::make(&case.mounts, dir.path())?;
    let config = request::container(case, image, &sources, dir.path())?;
    let log = PathBuf::from(&pod.config.log_directory).join(&config.log_path);
    let ran = match side.create(pod, config).await {
        Ok(id) => {
            let started = started(side, case, &id, outcome).await;
            if let Err(error) = &started {
                outcome.refused("start", error.message());
            }
            if let Err(error) = side.remove(&id).await {
                outcome.refused("remove", error.message());
            }
            started.is_ok()
        }
        Err(error) => {
            outcome.refused("create", error.message());
            false
        }
    };
    let text = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    // The next container of the pod has a log of the same name.
    let _ = std::fs::remove_file(&log);
    outcome.saw_text("out", &log::stream(&text, "stdout"));
    outcome.saw_text("err", &log::stream(&text, "stderr"));
    // Mount points made before the failing one do not matter.
    if ran {
        sources.found().into_iter().for_each(|line| outcome.saw(line));
    }
    Ok(())
}

/// The steps after the container's creation, up to its end.
async fn started(side: &mut Side, case: &Case, id: &str, outcome: &mut Outcome) -> Result<(), Status> {
    side.start(id).await?;
    let lines = case.exec.iter().map(|line| vec!["sh".to_owned(), "-c".to_owned(), line.clone()]);
    let commands: Vec<Vec<String>> = lines.chain(case.exec_words.iter().cloned()).collect();
    for (number, command) in commands.iter().enumerate() {
        let what = format!("exec {number}");
        match side.exec(id, command, case.exec_timeout).await {
            Ok(answer) => {
                outcome.saw(format!("{what}: exit {}", answer.exit_code));
                outcome.saw_text(&format!("{what} out"), &String::from_utf8_lossy(&answer.stdout));
                outcome.saw_text(&format!("{what} err"), &String::from_utf8_lossy(&answer.stderr));
            }
            Err(error) => outcome.refused(&what, error.message()),
        }
    }
    let is_stopped = case.stop.is_some() || !commands.is_empty();
    if is_stopped && let Err(error) = side.stop(id, case.stop.unwrap_or_default()).await {
        outcome.refused("stop", error.message());
    }
    match side.ended(id).await {
        Ok(status) => outcome.saw(ending(&status)),
        Err(error) => {
            outcome.refused("end", error.message());
            // Whatever it does, it is not in the way of the next case.
            let _ = side.stop(id, 0).await;
        }
    }
    Ok(())
}

fn ending(status: &v1::ContainerStatus) -> String {
    format!("end: exit {} {}", status.exit_code, status.reason)
}
