//! `podvisor completions`: prints a script for a shell to complete this program's commands, options and
//! names. The script calls this program for each completion (`complete.rs`). Printing it reads nothing from
//! the node.

use std::process::ExitCode;

use anyhow::Context;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::complete;
use crate::show::out;

/// Arguments of `podvisor completions`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Shell to print the script for.
    shell: Shell,
}

/// Prints the script.
pub(crate) fn print(args: Args) -> anyhow::Result<ExitCode> {
    out::print(&script(args.shell)?)?;
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell) -> anyhow::Result<String> {
    let shells = Shells::builtins();
    let shell = shells.completer(&shell.to_string()).context("no script is known for this shell")?;
    let mut script = Vec::new();
    shell.write_registration(complete::VARIABLE, "podvisor", "podvisor", "podvisor", &mut script)?;
    Ok(String::from_utf8(script)?)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shells_script_asks_this_program() {
        for shell in Shell::value_variants() {
            let script = script(*shell).unwrap();
            assert!(script.contains(complete::VARIABLE) && script.contains("podvisor"), "{shell}: {script}");
        }
    }
}
