//! Commands for images: lists, pages and removals over CRI, pulls and imports over the daemon's own service.
//! Each verb has a file.

mod bars;
mod credentials;
pub(crate) mod import;
pub(crate) mod inspect;
mod lines;
pub(crate) mod list;
mod pack;
pub(crate) mod pull;
pub(crate) mod remove;
mod rows;
mod transfer;

use std::process::ExitCode;

use clap::Subcommand;

pub(crate) use self::credentials::CredentialArgs;

use crate::config::Config;

/// Arguments of `podvisor image`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print all information about images.
    Inspect(inspect::Args),
    /// Import the images of an OCI image layout, or of an archive of docker save.
    Import(import::Args),
}

/// Runs the verb.
pub(crate) async fn image(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    match args.verb {
        Verb::Inspect(args) => inspect::inspect(config, args).await,
        Verb::Import(args) => import::import(config, args).await,
    }
}
