//! The time of a program from its start until its first byte of output, including its child processes.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::handlers::SETTLED_WITHIN;

/// Runs the program some times, each time after the previous run's remaining work, and returns the times of
/// the first byte. The first run has cold caches and does not count. Nothing else may run in this process
/// meanwhile.
pub(crate) fn first_bytes(
    starts: usize,
    command: impl Fn(usize) -> Command,
) -> anyhow::Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(starts);
    for number in 0..=starts {
        std::thread::sleep(SETTLED_WITHIN);
        let first = first_byte(command(number))?;
        if number > 0 {
            took.push(first);
        }
    }
    Ok(took)
}

fn first_byte(mut command: Command) -> anyhow::Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    let mut child = command.spawn().with_context(|| format!("running {command:?}"))?;
    let mut byte = [0];
    let read = child.stdout.as_mut().context("no pipe")?.read(&mut byte)?;
    let took = begun.elapsed();
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && read == 1, "{command:?} ended with {}: {errors}", output.status);
    Ok(took)
}
