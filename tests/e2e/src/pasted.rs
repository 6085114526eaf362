//! Blocks of commands on the pages, run as readers paste them. `tests/pages/blocks.toml` has a row for each:
//! what a block needs before, and what is changed in it.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tests_pages::{Block, END, ROWS, Row, find, is_shown, rows, script as script_of, transcript};
use tokio::process::Command;

use crate::host::Host;

/// The repository's root. Nodes have it at the same path.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The block of a page that begins with this text, as a script for bash.
///
/// # Errors
/// No row with `run_by` is for it, or its page has changed.
pub fn script(page: &str, begins: &str) -> Result<String> {
    let (row, block) = taken(page, begins)?;
    script_of(&row, &block)
}

/// Runs a block on this system, in the repository's root.
///
/// # Errors
/// It fails.
pub async fn runs(page: &str, begins: &str) -> Result<()> {
    bash(&script(page, begins)?).await.map(drop)
}

/// Runs a transcript with the host's `podvisor`.
///
/// # Errors
/// A command fails, or the page shows other lines than its output has.
pub async fn shows(host: &Host, page: &str, begins: &str) -> Result<()> {
    let (row, block) = taken(page, begins)?;
    let (program, config) = (host.daemon.binary().display(), host.daemon.config().display());
    let function = format!("podvisor() {{ '{program}' --config '{config}' \"$@\"; }}");
    let text = bash(&format!("{function}\n{}", script_of(&row, &block)?)).await?;
    // The first part is the output of the needs.
    let parts: Vec<&str> = text.split(END).skip(1).collect();
    for ((command, shown), printed) in transcript(&block.text).iter().zip(parts) {
        let wanted = shown.join("\n");
        ensure!(is_shown(shown, printed), "{page} shows of {command}:\n{wanted}\nseen:{printed}");
    }
    Ok(())
}

async fn bash(script: &str) -> Result<String> {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]).current_dir(ROOT).stdin(Stdio::null());
    let output = command.output().await.context("running bash")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{script}\n{text}{said}");
    Ok(text)
}

fn taken(page: &str, begins: &str) -> Result<(Row, Block)> {
    let read = |path: &str| std::fs::read_to_string(Path::new(ROOT).join(path)).context(path.to_owned());
    let of_block = |row: &Row| row.page == page && row.begins == begins && row.run_by.is_some();
    let row = rows(&read(ROWS)?)?.into_iter().find(of_block);
    let row = row.with_context(|| format!("{ROWS} has no row with run_by for {page}, {begins:?}"))?;
    let block = find(&row, &read(page)?)?;
    Ok((row, block))
}
