//! `podvisor completions`: prints a script for a shell to complete this program's commands and options. The
//! script is made from the definitions of the argument parser. It reads nothing from the node.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;

/// Arguments of `podvisor completions`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Shell to print the script for.
    shell: Shell,
}

/// Prints the script for the program defined by `command`.
pub(crate) fn print(args: Args, command: Command) -> anyhow::Result<ExitCode> {
    std::io::stdout().write_all(&script(args.shell, command)).context("printing the completions")?;
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell, mut command: Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "podvisor", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, ValueEnum};

    use super::*;
    use crate::Cli;

    #[test]
    fn every_shell_completes_every_command_that_is_shown() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell, Cli::command())).unwrap();
            let command = Cli::command();
            for shown in command.get_subcommands().filter(|command| !command.is_hide_set()) {
                assert!(script.contains(shown.get_name()), "{shell}: {}", shown.get_name());
            }
            assert!(script.contains("streaming-ca"), "{shell}: options are completed, too");
        }
    }
}
