//! The phases of RunPodSandbox, through the daemon, as instructions of the node: with CNI's plugins beside, and, for a pod that
//! boots, one that goes on from a template and one that gets a VM which waits, with a plugin that does nothing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tests_e2e::traces::vmms_without_pod;
use tests_e2e::{Host, spec};

/// Millions of instructions in a millisecond of the node's clock, at two nanoseconds an instruction.
const INSTRUCTIONS_PER_MS_MILLIONS: f64 = 0.5;

/// The handler whose pods boot, the one whose pods go on from a template, and the one for whose pods a VM waits; else they are
/// alike.
const BOOTED: &str = "podvisor";
const CLONED: &str = "cloned";
const WAITING: &str = "waiting";

/// A CNI plugin that does nothing but name an address, as a pod has to have one; it costs what a small shell does.
const NOTHING: &str = r#"echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "lo", "sandbox": "/"}],
  "ips": [{"address": "127.0.0.1/8", "interface": 0}]}'"#;

/// A shell that is linked statically, of Debian's `busybox-static`.
const BUSYBOX: &str = "/bin/busybox";

/// How long what was started has work of its own: the balloon, for one, is bound a while after the start.
const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// Longest wait for the template.
const MADE_WITHIN: Duration = Duration::from_secs(300);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A pod's phases, as its verbose status has them.
type Phases = Vec<serde_json::Value>;

/// Prints the phases of a pod that boots with CNI's plugins beside, then those of one that boots and of one that goes on from
/// a template without them. The daemon's state is in `memory`: a wait for the node's disk would count as instructions.
pub(crate) async fn bench(host: &mut Host, memory: &Path, starts: u32) -> anyhow::Result<()> {
    let state = memory.join("state");
    let config = fs::read_to_string(host.daemon.config())?;
    let before = format!("state = {:?}", host.dir().join("state"));
    fs::write(host.daemon.config(), config.replace(&before, &format!("state = {state:?}")))?;
    host.daemon.kill_and_restart().await?;
    print("booted, CNI beside", starts_of(host, BOOTED, starts).await?.middle());
    without_plugins(host, memory).await?;
    with_templates(host, &state).await?;
    let booted = starts_of(host, BOOTED, starts).await?;
    print("booted", booted.middle());
    let booted = total(booted.middle());
    for (how, handler) in [("from a template", CLONED), ("in a VM that waits", WAITING)] {
        let starts = starts_of(host, handler, starts).await?;
        print(how, starts.middle());
        let (least, median, most) = starts.totals();
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
    fn middle(&self) -> &Phases {
        &self.0[self.0.len() / 2]
    }

    /// The least, the median and the most of the wholes, in millions of instructions.
    fn totals(&self) -> (f64, f64, f64) {
        let at = |place: usize| total(&self.0[place]);
        (at(0), total(self.middle()), at(self.0.len() - 1))
    }
}

/// Runs some pods, each on a node at rest, and returns the phases of each but the first one, which pays for what is cold, as CNI's bridge.
async fn starts_of(host: &Host, handler: &str, starts: u32) -> anyhow::Result<Starts> {
    let mut client = host.client();
    let mut all = Vec::new();
    for number in 0..=starts.max(1) {
        rests(host, handler).await?;
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

/// Waits for what waits for a pod, a network namespace, a VMM and for one handler a VM, and for the node to have nothing else to do.
async fn rests(host: &Host, handler: &str) -> anyhow::Result<()> {
    let count = |line: &str| host.daemon.log().matches(line).count();
    // Each VM that was taken made room for another.
    let vms = || count("a VM waits for a pod") - count("in a VM that waited");
    let waits = async {
        while handler == WAITING && vms() == 0 {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        while host.daemon.held_namespaces()?.is_empty() || vmms_without_pod().len() <= vms() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        tokio::time::sleep(SETTLED_WITHIN).await;
        anyhow::Ok(())
    };
    tokio::time::timeout(MADE_WITHIN, waits).await.context("nothing waits for a pod")?
}

/// Gives pods a network whose plugin does nothing, and whose shell is in `memory` and needs no libraries from the node's disk.
async fn without_plugins(host: &mut Host, memory: &Path) -> anyhow::Result<()> {
    let shell = memory.join("busybox");
    fs::copy(BUSYBOX, &shell).with_context(|| format!("copying {BUSYBOX}"))?;
    host.put_before_plugin("nothing", NOTHING).await?;
    let plugin = host.dir().join("plugins/nothing");
    let script = fs::read_to_string(&plugin)?;
    fs::write(&plugin, script.replacen("/bin/sh", &format!("{} sh", shell.display()), 1))?;
    let plugins = serde_json::json!([{ "type": "nothing" }]);
    let conflist = serde_json::json!({ "cniVersion": "1.0.0", "name": "nothing", "plugins": plugins });
    Ok(host.network.configure(&conflist)?)
}

/// Starts the daemon anew with a handler that has templates, and waits for the first.
async fn with_templates(host: &mut Host, state: &Path) -> anyhow::Result<()> {
    let config = fs::read_to_string(host.daemon.config())?;
    let handler = |name, more| {
        format!(
            "[[handler]]\nname = \"{name}\"\nmemory_mib = 128\nscratch_mib = 1024\ntemplate = \"node\"\n{more}"
        )
    };
    let handlers = handler(CLONED, "") + &handler(WAITING, "spare_vms = 1\n");
    fs::write(host.daemon.config(), config + &handlers)?;
    host.daemon.kill_and_restart().await?;
    let templates = state.join("templates");
    let made = async {
        while !has_template(&templates) {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    tokio::time::timeout(MADE_WITHIN, made).await.context("no template was made")
}

/// Whether there is a whole template on the disk, where it comes last.
fn has_template(templates: &Path) -> bool {
    let entries = fs::read_dir(templates).into_iter().flatten().flatten();
    entries
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .any(|entry| entry.path().join("record").exists())
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
