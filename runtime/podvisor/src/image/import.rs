//! `podvisor image import`: sends an archive to the daemon, and the daemon makes its images. The daemon opens
//! no path from here.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use proto_images::v1::import_request::{Begin, Part};
use proto_images::v1::{Image, ImportRequest, State};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::pack::Input;
use super::transfer::{self, Ended, Interrupts, Shown};
use crate::config::Config;
use crate::daemon::Daemon;
use crate::show::{escape, out, units};

/// Requests in the queue to the daemon.
const QUEUE: usize = 4;

/// Arguments of `podvisor image import`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name for the image, with a tag, in place of its names in the archive. The archive must have one image.
    #[arg(long)]
    name: Option<String>,
    /// Print nothing but the images' ids.
    #[arg(short, long)]
    quiet: bool,
    /// An archive, compressed or not: of docker save, or with an OCI image layout. Or a directory with an OCI
    /// image layout, or - for an archive on standard input.
    #[arg(value_name = "FILE|DIRECTORY|-")]
    archive: PathBuf,
}

/// Imports all images of the archive.
pub(crate) async fn import(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let shown_path = args.archive.display().to_string();
    let input = Input::open(&args.archive).with_context(|| format!("reading {shown_path}"))?;
    if matches!(input, Input::Stdin) && std::io::stdin().is_terminal() {
        bail!("standard input is a terminal, and no archive");
    }
    let mut interrupts = Interrupts::listen()?;
    let daemon = Daemon::dial(config).await?;
    let (sender, requests) = mpsc::channel(QUEUE);
    let begin = Begin { name: args.name.clone().unwrap_or_default() };
    sender.send(ImportRequest { part: Some(Part::Begin(begin)) }).await.context("beginning the import")?;
    let mut transfers = daemon.client.transfers.clone();
    let mut sending = tokio::task::spawn_blocking(move || input.send(sender));
    let answer = daemon.ask("Import", transfers.import(ReceiverStream::new(requests))).await?;
    let following = transfer::follow(answer, Shown::of(args.quiet, &shown_path), &mut interrupts);
    tokio::pin!(following);
    let mut is_sent = false;
    let ended = loop {
        tokio::select! {
            biased;
            // A failure here ends the daemon's side as well, and its error has less detail.
            sent = &mut sending, if !is_sent => {
                sent?.with_context(|| format!("reading {shown_path}"))?;
                is_sent = true;
            }
            ended = &mut following => break ended?,
        }
    };
    match ended {
        Ended::Done(images) => {
            out::print(&lines(&images, args.quiet))?;
            Ok(ExitCode::SUCCESS)
        }
        Ended::Interrupted(State::Unknown | State::Waiting | State::Receiving) => {
            Ok(transfer::interrupted("nothing is imported"))
        }
        Ended::Interrupted(_) => Ok(transfer::interrupted("the daemon goes on with the import")),
    }
}

/// The last lines of an import.
fn lines(images: &[Image], quiet: bool) -> String {
    let line = |image: &Image| {
        if quiet {
            return escape::line(&image.id).into_owned() + "\n";
        }
        let names = image.repo_tags.join(", ");
        let names = if names.is_empty() { "an image without a name".to_owned() } else { names };
        format!("imported {} ({})\n", escape::line(&names), escape::line(units::short_digest(&image.id)))
    };
    images.iter().map(line).collect()
}
