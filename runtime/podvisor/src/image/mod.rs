//! Commands for images: lists, pages and removals over CRI. Each verb has a file.

pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod remove;
mod rows;

use std::process::ExitCode;

use clap::Subcommand;

use crate::config::Config;

/// Arguments of `podvisor image`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print everything that is known of images.
    Inspect(inspect::Args),
}

/// Runs the verb.
pub(crate) async fn image(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    match args.verb {
        Verb::Inspect(args) => inspect::inspect(config, args).await,
    }
}
