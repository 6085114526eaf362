//! The handlers for three kinds of starts, a daemon with them, and a node at rest before each start. The
//! measurements themselves are elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tests_e2e::Host;
use tests_e2e::traces::{vmms_without_pod, waiting_vms};

/// The handler with booting pods, the one with pods from a template, and the one with pooled VMs; otherwise
/// they are equal.
pub(crate) const BOOTED: &str = "podvisor";
pub(crate) const CLONED: &str = "cloned";
pub(crate) const WAITING: &str = "waiting";

/// A CNI plugin only naming an address, because a pod needs one; it costs as much as a small shell.
const NOTHING: &str = r#"echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "lo", "sandbox": "/"}],
  "ips": [{"address": "127.0.0.1/8", "interface": 0}]}'"#;

/// A statically linked shell, of Debian's `busybox-static`.
const BUSYBOX: &str = "/bin/busybox";

/// How long a started pod has background work: for example, the balloon is bound a while after the start.
pub(crate) const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// Longest wait for the template.
const MADE_WITHIN: Duration = Duration::from_secs(300);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Restarts the daemon with its state in `memory`, because a wait for the node's disk would count as
/// instructions. Returns the state's directory.
pub(crate) async fn state_in_memory(host: &mut Host, memory: &Path) -> anyhow::Result<PathBuf> {
    let state = memory.join("state");
    let config = fs::read_to_string(host.daemon.config())?;
    let before = format!("state = {:?}", host.dir().join("state"));
    fs::write(host.daemon.config(), config.replace(&before, &format!("state = {state:?}")))?;
    host.daemon.kill_and_restart().await?;
    Ok(state)
}

/// Waits for the pools (a network namespace, a VMM, and for one handler so many VMs), and for an idle node.
pub(crate) async fn rests(host: &Host, handler: &str, waiting: usize) -> anyhow::Result<()> {
    let vms = || waiting_vms(&host.daemon.log()).len();
    let waits = async {
        while handler == WAITING && vms() < waiting {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        while host.daemon.held_namespaces()?.is_empty() || vmms_without_pod().len() <= vms() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        // Others may still be in progress, because of recent requests.
        let mut before = None;
        while before != Some(vms()) {
            before = Some(vms());
            tokio::time::sleep(SETTLED_WITHIN).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(MADE_WITHIN, waits).await.context("nothing waits for a pod")?
}

/// Gives pods a network with an empty plugin. Its shell is in `memory` and needs no libraries from the node's
/// disk.
pub(crate) async fn without_plugins(host: &mut Host, memory: &Path) -> anyhow::Result<()> {
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

/// Restarts the daemon with template handlers, one of them with at most `spare_vms` pooled VMs, and waits for
/// the first.
pub(crate) async fn with_templates(host: &mut Host, state: &Path, spare_vms: usize) -> anyhow::Result<()> {
    let config = fs::read_to_string(host.daemon.config())?;
    let handler = |name: &str, more: &str| {
        format!(
            "[[handler]]\nname = \"{name}\"\nmemory_mib = 128\nscratch_mib = 1024\ntemplate = \"node\"\n{more}"
        )
    };
    let handlers = handler(CLONED, "") + &handler(WAITING, &format!("spare_vms = {spare_vms}\n"));
    // With several handlers there is no automatic default, and later benchmarks name no handler.
    let name = format!("name = \"{BOOTED}\"\n");
    let config = config.replacen(&name, &format!("{name}default = true\n"), 1);
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

/// Returns true if there is a complete template on the disk, the last step of making one.
fn has_template(templates: &Path) -> bool {
    let entries = fs::read_dir(templates).into_iter().flatten().flatten();
    entries
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .any(|entry| entry.path().join("record").exists())
}
