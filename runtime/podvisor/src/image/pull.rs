//! `podvisor pull`: pulls images by the daemon's own service, with progress. The images are for pods in VMs.

use std::process::ExitCode;

use anyhow::Context;
use proto_images::v1::{Image, PullRequest};

use super::credentials::{CredentialArgs, Given};
use super::transfer::{self, Ended, Interrupts, Shown};
use crate::config::Config;
use crate::daemon::{Daemon, DaemonError};
use crate::exit;
use crate::show::{escape, out, units};

/// Arguments of `podvisor pull`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print nothing but the images' ids.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    credentials: CredentialArgs,
    /// Names of images, with a tag or a digest.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

/// Pulls the images one after the other. A failure of one does not stop the others.
pub(crate) async fn pull(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let given = args.credentials.read(&args.names)?;
    let mut interrupts = Interrupts::listen()?;
    let daemon = Daemon::dial(config).await?;
    let mut code = ExitCode::SUCCESS;
    for name in &args.names {
        match pull_one(&daemon, &given, name, Shown::of(args.quiet, name), &mut interrupts).await {
            Ok(Ended::Done(images)) => {
                // The next image is pulled without a reader, too.
                lines(name, &images, args.quiet).for_each(out::say);
            }
            Ok(Ended::Interrupted(_)) => {
                return Ok(transfer::interrupted(&format!("the daemon goes on with the pull of {name}")));
            }
            // The next call would not be answered either.
            Err(error)
                if matches!(
                    error.downcast_ref(),
                    Some(DaemonError::Late { .. } | DaemonError::Lacks { .. })
                ) =>
            {
                return Err(error);
            }
            Err(error) => {
                out::complain(escape::line(&format!("{name}: {error:#}")));
                code = ExitCode::from(exit::PODVISOR_FAILED);
            }
        }
    }
    Ok(code)
}

/// Pulls the image of a container to be run, and returns its id. `None` if a user has interrupted the
/// command, and the daemon goes on with the pull.
pub(crate) async fn pull_to_run(
    daemon: &Daemon,
    credentials: &CredentialArgs,
    name: &str,
) -> anyhow::Result<Option<String>> {
    let given = credentials.read(&[name.to_owned()])?;
    let mut interrupts = Interrupts::listen()?;
    let shown = Shown::beside_a_container(&format!("pulling {name}"));
    match pull_one(daemon, &given, name, shown, &mut interrupts).await? {
        Ended::Done(images) => {
            let image = images.into_iter().next().context("the daemon answered without an image")?;
            Ok(Some(image.id))
        }
        Ended::Interrupted(_) => {
            transfer::interrupted(&format!("the daemon goes on with the pull of {name}"));
            Ok(None)
        }
    }
}

/// The same, only if the node does not have the image.
pub(crate) async fn find_or_pull_to_run(
    daemon: &Daemon,
    credentials: &CredentialArgs,
    name: &str,
) -> anyhow::Result<Option<String>> {
    match daemon.image_status(name).await?.image {
        Some(image) => Ok(Some(image.id)),
        None => pull_to_run(daemon, credentials, name).await,
    }
}

async fn pull_one(
    daemon: &Daemon,
    given: &Given,
    name: &str,
    shown: Shown,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Ended> {
    let credentials = given.credentials_for(name)?;
    let request = PullRequest { image: name.to_owned(), credentials };
    let mut transfers = daemon.client.transfers.clone();
    let answer = daemon.ask("Pull", transfers.pull(request)).await?;
    transfer::follow(answer, shown, interrupts).await
}

/// The last lines of a pull.
fn lines(name: &str, images: &[Image], quiet: bool) -> impl Iterator<Item = String> {
    images.iter().map(move |image| match quiet {
        true => escape::line(&image.id).into_owned(),
        false => {
            format!("pulled {} ({})", escape::line(name), escape::line(units::short_digest(&image.id)))
        }
    })
}
