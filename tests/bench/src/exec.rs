//! Measures the cost of a command by ExecSync, as a multiple of the program's cost inside the container.
//!
//! Both are measured from the client, in turns. Inside, a shell starts the program many times. The cost of
//! the same loop without the program is subtracted, and so is the cost of the command running the loop.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};

use crate::figures::millions;
use crate::median::median;

/// The program by its path, so a shell does not run a builtin of the same name.
const PROGRAM: &str = "/bin/true";

/// A builtin of the shell without effect, for the cost of the loop.
const NOTHING: &str = ":";

/// Calls before the first counted one.
const WARM_UP: usize = 5;

/// Rounds, each with calls of ExecSync and then programs started inside.
const ROUNDS: usize = 5;
const CALLS: usize = 8;
const STARTS: u32 = 100;

/// Timeout of a call, in seconds.
const TIMEOUT_SECONDS: i64 = 600;

/// The project's aim for the ratio.
const AIM: f64 = 10.0;

/// Prints the medians of both and their ratio.
pub(crate) async fn bench(host: &Host) -> anyhow::Result<()> {
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await?;
    let pod = client.run_pod(&spec::pod("exec", host.dir())).await.context("running a pod")?;
    let container =
        client.run(&pod, spec::confined(spec::container("main", &image, &["sleep", "1000000"]))).await?;

    for _ in 0..WARM_UP {
        exec(&mut client, &container, &[PROGRAM]).await?;
    }
    let (mut calls, mut starts) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for _ in 0..CALLS {
            calls.push(exec(&mut client, &container, &[PROGRAM]).await?);
        }
        let nothing = exec(&mut client, &container, &["sh", "-c", &repeat(NOTHING)]).await?;
        let programs = exec(&mut client, &container, &["sh", "-c", &repeat(PROGRAM)]).await?;
        starts.push(programs.saturating_sub(nothing) / STARTS);
    }
    let (call, start) = (median(&mut calls), median(&mut starts));
    println!(
        "bench: ExecSync {PROGRAM}: {:.2} M instructions ({:.2} M to {:.2} M), fork and exec in the guest: {:.2} M, \
         ratio {:.1} (aim: under {AIM})",
        millions(call),
        millions(calls[0]),
        millions(calls[calls.len() - 1]),
        millions(start),
        call.as_secs_f64() / start.as_secs_f64(),
    );
    client.remove_pod(&pod).await?;
    Ok(())
}

/// A line of shell repeating a command.
fn repeat(command: &str) -> String {
    format!("i=0; while [ $i -lt {STARTS} ]; do {command}; i=$((i+1)); done")
}

async fn exec(client: &mut Client, container: &str, command: &[&str]) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let answer = client.exec(container, command, TIMEOUT_SECONDS).await?;
    let took = begun.elapsed();
    ensure!(answer.exit_code == 0, "{command:?} ended with {}", answer.exit_code);
    Ok(took)
}
