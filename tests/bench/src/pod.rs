//! The phases of RunPodSandbox, through the daemon, as instructions of the node.

use anyhow::Context;
use tests_e2e::{Host, spec};

/// Millions of instructions in a millisecond of the node's clock, at two nanoseconds an instruction.
const INSTRUCTIONS_PER_MS_MILLIONS: f64 = 0.5;

/// Runs a pod twice and prints the second one's phases: the first one pays for CNI's first bridge.
pub(crate) async fn bench(host: &Host) -> anyhow::Result<()> {
    let mut client = host.client();
    let mut phases = Vec::new();
    for name in ["first", "second"] {
        let pod = client.run_pod(&spec::pod(name, host.dir())).await.context("running a pod")?;
        let (_, info) = client.pod_status_verbose(&pod).await?;
        phases = info["phases"].as_array().context("the verbose status has no phases")?.clone();
        client.remove_pod(&pod).await?;
    }
    for phase in phases {
        let ms = |key: &str| phase[key].as_f64().unwrap_or(f64::NAN);
        println!(
            "bench: RunPodSandbox phase {:<12} from {:7.1} M for {:7.1} M instructions",
            phase["name"].as_str().unwrap_or("?"),
            ms("start_ms") * INSTRUCTIONS_PER_MS_MILLIONS,
            ms("duration_ms") * INSTRUCTIONS_PER_MS_MILLIONS,
        );
    }
    Ok(())
}
